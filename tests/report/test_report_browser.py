"""The report in a real browser: drawn as computed, clickable, and deaf to the outside."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from browser import MISSING
from hostile_names import FEATURE, HOSTILE, federation

from weft import Federation, Preprocessing, Settings
from weft.cli import main
from weft.report.history_table import certificates
from weft.report.page import write_page
from weft.report.results_folder import write_results
from weft.report.sizes_and_holders_of_groups import feature_sets

pytestmark = pytest.mark.skipif(
    MISSING, reason="chromium and chromedriver are not installed (Debian: chromium-driver)"
)

CONFIG = """
name = "two"
[data]
scaling = "standard"
[model]
lambda = 1e-2
[solver]
cipher = "plain"
round_trips = 60
[privacy]
allow_pairs = true
allow_exposure = true
ciphers = ["plain"]
"""


@pytest.fixture(scope="module")
def no_plot():
    """As where matplotlib is not installed: drawing takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        yield


@pytest.fixture(scope="module")
def run(no_plot, tmp_path_factory):
    """Folder of a run with hostile names."""
    folder, tiles = tmp_path_factory.mktemp("run"), federation()
    settings = Settings(lam=0.05, loss="logistic", gap=1e-6, solver="auto")
    trained = Federation(tiles, Preprocessing(scaling="standard")).train(settings)
    held = feature_sets(tiles, trained.holdings.parties, trained.model)
    write_results(folder, trained, settings, name="<i>a run</i>", feature_sets=held)
    return folder


@pytest.fixture(scope="module")
def comparison(no_plot, tmp_path_factory):
    """Folder of a comparison of three algorithms."""
    folder = tmp_path_factory.mktemp("compared")
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(60) < 0.5, "a", "b")
    parties = ""
    for number, name in enumerate(("north", "south")):
        values = rng.normal(size=(60, 2)) + (labels == "a")[:, None]
        frame = pd.DataFrame(values, columns=[f"x{number}", f"y{number}"])
        frame.insert(0, "id", [f"s{i}" for i in range(60)])
        frame.assign(label=labels).to_csv(folder / f"{name}.csv", index=False)
        parties += f'[[party]]\nname = "{name}"\nfile = "{name}.csv"\nlabel = "label"\n'
    (folder / "config.toml").write_text(CONFIG + parties)
    out = folder / "out"
    names = "cutting-planes,hyfdca,admm,alone"
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(folder / "config.toml"), "--algorithms", names,
              "--out", str(out), "--quiet"])  # fmt: skip
    assert not stop.value.code
    return out


@pytest.fixture
def show(browser):
    """Opens the page of a folder; in the end nobody has complained, and nothing was fetched."""

    def open_page(folder, width=1440):
        browser.resize(width)
        browser.open(folder / "report.html")
        # Charts are drawn once their width is known, on a busy machine a moment later.
        browser.wait("return [...document.querySelectorAll('.chart')].every((c) => c.firstChild)")
        return browser

    yield open_page
    assert browser.complaints() == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def drawn(browser, chart, name):
    """Costs at which the dots of a curve stand, read back from their places on the screen."""
    scale, dots = browser.run(
        """const root = document.querySelector(`#chart-${arguments[0]} svg`);
        const path = [...root.querySelectorAll('[data-dots]')]
          .find((found) => found.dataset.dots === arguments[1]);
        return [root.dataset.scale, path ? path.getAttribute('d') : null];""",
        chart,
        name,
    )
    if dots is None:
        return None
    low, high, left, right, _ = map(float, scale.split())
    places = np.array([float(x) for x in re.findall(r"M([-\d.]+) ", dots)])
    return low + (places - left) / (right - left) * (high - low)


def test_each_axis_puts_the_points_where_the_history_has_them(show, run):
    browser = show(run)
    known = certificates(pd.read_parquet(run / "history.parquet"))
    trips, computing = known["round_trips"].to_numpy(float), known["compute_seconds"].to_numpy()
    costs = {
        "t": trips,
        "i": known["certified_at"].to_numpy(float),
        "b": (known["bytes_down"] + known["bytes_up"]).to_numpy(float),
        "s": computing + 0.2575 * trips,
    }
    for axis, expected in costs.items():
        browser.click(f"[data-axis={axis}]")
        for chart, name in (("gap", "certified gap"), ("loss", "certified loss P(w)")):
            # A hundredth of a pixel is what the file keeps.
            places = drawn(browser, chart, name)
            assert places == pytest.approx(expected, abs=2e-5 * expected.max())
        assert browser.run(
            "return [...document.querySelectorAll('[data-axis][aria-pressed=true]')]"
            ".map((b) => b.dataset.axis)"
        ) == [axis]


def test_latency_changes_modelled_seconds(show, run):
    browser = show(run)
    known = certificates(pd.read_parquet(run / "history.parquet"))
    trips, computing = known["round_trips"].to_numpy(float), known["compute_seconds"].to_numpy()
    for latency, act in (
        (0.0, lambda: browser.click("[data-latency='0']")),
        (0.8, lambda: browser.click("[data-latency='0.8']")),
        (1.5, lambda: browser.type("#latency", "1.5")),
    ):
        act()
        expected = computing + latency * trips
        assert drawn(browser, "gap", "certified gap") == pytest.approx(
            expected, abs=2e-5 * expected.max()
        )


def test_a_run_without_a_certificate_is_drawn_too(show, run, tmp_path):
    summary = json.loads((run / "summary.json").read_text())
    summary["certificate"] = None
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    history = pd.read_parquet(run / "history.parquet")
    history[["primal", "dual", "gap", "certified_at"]] = None
    history.assign(loss_estimate=0.5).to_parquet(tmp_path / "history.parquet")
    write_page(tmp_path, tmp_path / "report.html")
    browser = show(tmp_path)
    curves = "return [...document.querySelectorAll('.chart .curve')].map((c) => c.dataset.name)"
    assert browser.run(curves) == ["estimate"]
    assert browser.run("return document.querySelectorAll('.chart svg').length") == 2


def test_hostile_names_are_shown_as_text(show, run):
    browser = show(run)
    assert browser.run("return document.querySelector('h1').textContent") == "<i>a run</i>"
    assert browser.run("return document.querySelectorAll('img, i, main script').length") == 0
    legend = browser.run(
        "return [...document.querySelectorAll('#party-legend button')].map((b) => b.textContent)"
    )
    assert legend == [HOSTILE, "split", "late"]
    names = browser.run(
        "return [...document.querySelectorAll('.weight .name > span')].map((s) => s.textContent)"
    )
    assert FEATURE in names


def test_the_picture_tells_who_holds_a_cell(show, run):
    browser = show(run)
    cohorts = json.loads((run / "summary.json").read_text())["cohorts"]
    browser.wait("return document.querySelector('#picture svg') !== null")
    browser.run(
        """const root = document.querySelector('#picture svg');
        root.focus();
        for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight']) {
          root.dispatchEvent(new KeyboardEvent('keydown', { key }));
        }"""
    )
    told = browser.run("return document.querySelector('#picture-told').textContent")
    row, column = cohorts["rows"][1], cohorts["columns"][1]
    size = f"{row['size']} samples × {column['size']} feature"
    assert size in told
    # The first press goes to the first cell; a party that is pointed out leaves others pale.
    browser.click("#party-legend button:nth-child(2)")
    pale = browser.run("return document.querySelectorAll('#picture .dim').length")
    browser.click("#party-legend button:nth-child(2)")
    assert pale > 0 == browser.run("return document.querySelectorAll('#picture .dim').length")
    browser.type("#find-party", "late")
    assert "1 of 3 parties" in browser.run(
        "return document.querySelector('#picture-told').textContent"
    )


def test_the_filter_keeps_matching_weights(show, run):
    browser = show(run)
    count = "return document.querySelectorAll('.weight').length"
    assert browser.run(count) == 8
    browser.type("#find-feature", "onerror")
    assert browser.run(count) == 1
    # Parties are found too: three features are at "late".
    browser.type("#find-feature", "late")
    assert browser.run(count) == 3
    browser.type("#find-feature", "")
    first = "return document.querySelector('.weight .n').textContent"
    scaled = browser.run(first)
    browser.click("[data-unit='2']")
    assert browser.run(first) != scaled


def test_curves_of_a_comparison_come_and_go_with_the_legend(show, comparison):
    browser = show(comparison)
    rows = json.loads((comparison / "summary.json").read_text())["results"]
    ran = {row["algorithm"]: row for row in rows if row["kind"] == "federated"}
    legend = browser.run(
        "return [...document.querySelectorAll('#legend button')].map((b) => b.textContent)"
    )
    assert set(legend) == set(ran) == {"cutting-planes", "hyfdca", "admm"}
    for name, row in ran.items():
        # The last dot is the model itself, which the judge has measured.
        assert drawn(browser, "distance", name)[-1] == pytest.approx(row["round_trips"], abs=0.05)
    button = f"#legend button:nth-child({legend.index('admm') + 1})"
    browser.click(button)
    assert drawn(browser, "distance", "admm") is None
    assert drawn(browser, "gap", "hyfdca") is not None
    browser.click(button)
    assert drawn(browser, "distance", "admm") is not None


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_is_wider_than_its_window(show, run, comparison, width):
    for folder in (run, comparison):
        browser = show(folder, width)
        browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_sections_can_be_reached_and_bars_change(show, run):
    browser = show(run)
    links = browser.run(
        "return [...document.querySelectorAll('nav a')].map((a) => a.getAttribute('href'))"
    )
    assert links == [
        *("#accuracy", "#tiles", "#convergence", "#costs", "#weights", "#privacy", "#rerun")
    ]
    assert browser.run(
        "return arguments[0].every((link) => document.querySelector(`section${link} h2`))", links
    )
    widths = "return [...document.querySelectorAll('details [data-widths]')].map((b) => \
        b.firstElementChild.getAttribute('width'))"
    phases = json.loads((run / "summary.json").read_text())["phases"].values()
    browser.click("[data-metric=calls]")
    most = max(phase["calls"] for phase in phases)
    shown = [float(width.rstrip("%")) for width in browser.run(widths)]
    assert shown == pytest.approx([100 * p["calls"] / most for p in phases], abs=0.01)


@pytest.mark.parametrize("width", [390, 1440])
def test_contents_and_costs_need_no_scrolling_sideways(show, run, width):
    browser = show(run, width)
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    inside = """return [...document.querySelectorAll(arguments[0])].map((e) => {
        const box = e.getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth && (innerWidth > 500 || box.height >= 40);
    })"""
    assert set(browser.run(inside, "nav a")) == {True}
    scrolls = """return [...document.querySelectorAll('#costs .scroll')]
        .map((e) => e.scrollWidth - e.clientWidth)"""
    assert browser.run(scrolls) == [0, 0]


#: Texts with too little contrast (WCAG 2, level AA: 4.5, of large ones 3): the colour of a text
#: against the first background behind it that is not transparent.
PALE = """
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => {
  const [r, g, b] = parts(colour).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if ((parts(colour)[3] ?? 1) > 0) return colour;
  }
  return 'rgb(255, 255, 255)';
};
const found = [];
for (const element of document.querySelectorAll('main *:not(svg *), footer')) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!own || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const [a, b] = [light(style.color), light(behind(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
  if (contrast < least) found.push([element.textContent.slice(0, 40), contrast]);
}
return found;
"""


@pytest.mark.release
def test_every_text_stands_out_from_its_background(show, run):
    browser = show(run)
    try:
        for scheme in ("light", "dark"):
            media = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.devtools("Emulation.setEmulatedMedia", features=media)
            assert browser.run(PALE) == [], scheme
    finally:
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        browser.devtools("Emulation.setEmulatedMedia", features=[still])
