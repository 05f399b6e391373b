"""The live page in a real browser: it follows what happens, and loads nothing else."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import msgspec
import pytest
from browser import MISSING

from covering import every_value
from weft import __version__
from weft.errors import ConfigError
from weft.network.console.page_server import PageServer
from weft.network.console.shared_view_records import ExposureRow, FederationView, RunRow, SiteRow
from weft.network.current_wait import Wait
from weft.network.nvflare_processes.kit_health import Symptom
from weft.network.run_progress_file import GapPoint

pytestmark = pytest.mark.skipif(
    MISSING, reason="chromium and chromedriver are not installed (Debian: chromium-driver)"
)

#: Asks at once; that the page does so by itself is tried once.
NOW = "return refresh()"
HOSTILE = '<img src=x onerror="document.title=1">'
WAIT = Wait(phase="match.tokens", parties=["south"], seconds=12, limit=60, why="is not connected")
EMPTY = FederationView(
    kind="coordinator", owner="coordinator", federation=f"two clinics {HOSTILE}", weft=__version__,
    now=1000.0, state="good", sentence="serving, 0 connected",
    symptoms=[Symptom(about="disk", state="good", found="81.2 GB free")],
    exposure_from="Of 0 runs.",
)  # fmt: skip


def gaps(number):
    return [GapPoint(3 * n, n, 2.0 ** (-n)) for n in range(1, number + 1)]


def running(number, **more):
    return RunRow(
        run="study-1", state="running", submitted="today", submitter=HOSTILE, curve=gaps(number),
        parties=["north", "south"], progress=f"iteration {number}", asked=1e-3, **more,
    )  # fmt: skip


class Moving:
    """A viewpoint whose view a test changes."""

    def __init__(self):
        self.view = EMPTY

    def look(self):
        if isinstance(self.view, ConfigError):
            raise self.view
        return self.view

    def change(self, **fields):
        self.view = msgspec.structs.replace(EMPTY, now=time.time(), **fields)


@pytest.fixture
def page(browser, monkeypatch):
    """An open page, and what it is about; in the end nobody has complained."""
    monkeypatch.setattr("weft.network.console.page_server._FRESH", 0.0)
    moving = Moving()
    server = PageServer(moving)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()

    def show(width=1440):
        browser.resize(width)
        browser.visit(server.address)
        return browser

    yield show, moving
    fetched = browser.run("return performance.getEntriesByType('resource').map((e) => e.name)")
    complaints = browser.complaints()
    browser.visit("about:blank")
    server.shutdown()
    thread.join()
    server.server_close()
    assert complaints == []
    assert set(fetched) <= {f"{server.address}state.json"}


def text(browser, selector):
    return browser.run("return document.querySelector(arguments[0])?.textContent", selector)


#: Every wait takes a tenth of what was asked for, which can be read.
HASTY = """
window.asked = [];
const wait = window.setTimeout;
window.setTimeout = (what, time) => { asked.push(time); return wait(what, time / 10); };
"""


def test_it_follows_a_federation_from_nothing_to_a_run_that_failed(page):
    show, moving = page
    added = show().devtools("Page.addScriptToEvaluateOnNewDocument", source=HASTY)
    browser = show()
    browser.devtools("Page.removeScriptToEvaluateOnNewDocument", **added)
    assert text(browser, "h1") == EMPTY.federation
    assert text(browser, "#headline") == "Serving, 0 connected."
    assert text(browser, "#runs-body") == "No run yet. weft submit hands one in."
    assert "No site has been connected yet" in text(browser, "#sites-body")
    assert text(browser, "#alarms") is None
    now = time.time()
    moving.change(
        runs=[running(8), RunRow(run="next", state="waiting", place=1)],
        sites=[SiteRow(name="north", state="connected", since=now, seen=now, version=__version__)],
    )
    browser.wait("return document.querySelector('[data-run=study-1] svg path.curve')")
    assert browser.run("return asked[0]") == 3000
    browser.run("window.setTimeout = () => {}")
    assert "waiting, 1 of 1 in the queue" in text(browser, "[data-run=next]")
    assert HOSTILE in text(browser, "[data-run=study-1]")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    browser.run("window.kept = document.querySelector('[data-run=study-1]')")
    # A site goes, the run waits, and the same element says so.
    moving.change(
        runs=[running(9, wait=WAIT, away={"south": "is not connected"})],
        sites=[SiteRow(name="south", state="gone", since=now - 5, seen=now - 6)],
    )
    browser.run(NOW)
    browser.wait("return document.querySelectorAll('#alarms li').length === 2")
    assert "south is gone, since" in text(browser, "#alarms")
    assert "Waits for south (is not connected): sending tokens" in text(
        browser, "[data-run=study-1]"
    )
    assert browser.run("return window.kept === document.querySelector('[data-run=study-1]')")
    # The run fails; what came before can still be read.
    failed = msgspec.structs.replace(running(9), state="failed", sentence="south stayed away")
    moving.change(runs=[failed], exposure=[ExposureRow(party="north", runs=1, reached=1)])
    browser.run(NOW)
    browser.wait("return document.querySelector('details[data-run=study-1]')")
    assert "South stayed away" in text(browser, "details[data-run=study-1][open]")
    assert "north11" in text(browser, "#exposure-body")
    # Nothing can be seen any more, and the page says of when it is.
    moving.view = ConfigError("the coordinator does not answer any more")
    browser.run(NOW)
    browser.wait("return document.querySelector('#headline').classList.contains('loud')")
    assert text(browser, "#headline") == "The coordinator does not answer any more."
    assert "What is below is of" in text(browser, "#freshness")
    assert text(browser, "details[data-run=study-1] h3") == "study-1"
    moving.change()
    browser.run(NOW)
    browser.wait("return document.querySelector('#runs-body').textContent.startsWith('No run yet')")


def test_gaps_are_drawn_where_they_belong_and_read_out_by_keyboard(page):
    show, moving = page
    moving.change(runs=[running(9)])
    browser = show()
    browser.wait("return document.querySelector('.chart svg')")
    places = "return document.querySelector('path.curve').getAttribute('d')"
    over_time = browser.run(places)
    heights = [float(part.split()[1]) for part in over_time.replace("L", "M").split("M")[1:]]
    steps = [b - a for a, b in pairwise(heights)]
    # Each gap is half of the one before: steps of the same height on a logarithmic scale.
    assert len(heights) == 9
    assert max(steps) - min(steps) < 0.2
    assert min(steps) > 3
    assert "asked for: 0.001" in text(browser, ".chart")
    browser.run("document.querySelector('.chart svg').focus()")
    browser.press("End")
    assert text(browser, ".chart .tip") == "1.95e-3iteration 9 · 27 s"
    browser.press("ArrowLeft")
    assert text(browser, ".chart .tip") == "3.91e-3iteration 8 · 24 s"
    # A new point comes, and the read-out stays where it was.
    moving.change(runs=[running(10)])
    browser.run(NOW)
    browser.wait("return document.querySelector('[data-run]').textContent.includes('ration 10')")
    assert text(browser, ".chart .tip") == "3.91e-3iteration 8 · 24 s"
    browser.click("[data-axis=i]")
    assert "iterations" in text(browser, ".chart")
    assert browser.run("return document.querySelector('[data-axis=i]').ariaPressed") == "true"


@every_value(width=[1440, 390], scheme=["light", "dark"])
def test_nothing_is_wider_than_the_window_and_words_can_be_read(page, width, scheme):
    show, moving = page
    now = time.time()
    long = "study-of-a-consortium-with-a-very-long-name-19898ed4"
    symptom = Symptom(about="disk", state="soon", found="0.7 GB free", mend="make room")
    moving.change(
        runs=[
            running(9, wait=WAIT, away={"south": "is not connected"}),
            msgspec.structs.replace(running(60), run=long, state="over", exposed="nothing"),
        ],
        sites=[
            SiteRow(name="north", state="connected", since=now, seen=now, version=__version__),
            SiteRow(name="a-site-with-a-long-name", state="silent", since=now, seen=now - 99),
        ],
        exposure=[ExposureRow(party="north", runs=3, reached=0, epsilon=1.25, delta=1e-6)],
        symptoms=[symptom],
    )
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser = show(width)
    browser.devtools("Emulation.setEmulatedMedia", features=features)
    browser.wait("return document.querySelector('.chart svg')")
    browser.click("details.run summary")
    assert browser.run("return document.querySelector('details.run').open")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    # The contrast of all words on what they stand on, by the rule of WCAG.
    poor = browser.run(CONTRAST)
    assert poor == []


CONTRAST = """
const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const light = (c) => c.slice(0, 3).map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const poor = [];
for (const element of document.querySelectorAll('main *, footer')) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || element instanceof SVGElement || !element.getClientRects().length) continue;
  const pair = [light(rgb(getComputedStyle(element).color)), light(behind(element))]
    .sort((a, b) => a - b);
  const ratio = (pair[1] + 0.05) / (pair[0] + 0.05);
  if (ratio < 4.5) poor.push([element.textContent.slice(0, 30), ratio.toFixed(2)]);
}
return poor;
"""
