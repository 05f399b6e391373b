"""The report: every number in it is the run's own, and nothing in it comes from elsewhere."""

import base64
import hashlib
import json
import math
import stat
import sys
from html.parser import HTMLParser

import msgspec
import numpy as np
import pandas as pd
import pytest
from hostile_names import FEATURE, HOSTILE, federation
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from weft import Federation, Preprocessing, Settings, Tile
from weft.all_messages import declared_phases
from weft.guards.privacy_terms import PILOT, Terms
from weft.report.history_table import certificates, history_frame
from weft.report.page.gap_and_loss_curves import curves_of, thinned
from weft.report.page.holdings_section import MOST_DRAWN, feature_groups, tiles_of
from weft.report.page.html_file import page_of
from weft.report.page.largest_model_weights import largest, weights_of
from weft.report.page.overview import overview
from weft.report.page.phase_names import name_of
from weft.report.page.read_results_folder import Source, read_folder
from weft.report.results_folder import write_files, write_results
from weft.report.score_interval import wilson_interval
from weft.report.sizes_and_holders_of_groups import cohorts_of, feature_sets, read_numbers, spelled
from weft.report.summary import exposure_reached


@pytest.fixture(scope="module")
def tiles():
    return federation()


@pytest.fixture(scope="module")
def settings():
    return Settings(lam=0.05, loss="logistic", gap=1e-6, solver="auto")


@pytest.fixture(scope="module")
def trained(tiles, settings):
    return Federation(tiles, Preprocessing(scaling="standard")).train(settings)


@pytest.fixture(scope="module")
def no_plot():
    """As where matplotlib is not installed: drawing takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        yield


@pytest.fixture(scope="module")
def folder(no_plot, tiles, trained, settings, tmp_path_factory):
    into = tmp_path_factory.mktemp("run")
    config = into.parent / "asked.toml"
    config.write_text('name = "</pre><script>alert(2)</script>"\n')
    write_results(
        into,
        trained,
        settings,
        name="a <b>run</b>",
        config=config,
        command="weft train",
        feature_sets=feature_sets(tiles, trained.holdings.parties, trained.model),
    )
    return into


class Page(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and its texts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.inside, self.words = [], {}, []
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = (tag, dict(attrs).get("id", ""))

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open and self._open[0] in ("script", "style"):
            self.inside[self._open] = self.inside.get(self._open, "") + data
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text("utf-8"))


# ── nothing from elsewhere ────────────────────────────────────────────────────────────────────


def test_names_cannot_become_elements(page):
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert [attributes.get("id") for attributes in scripts] == ["data", None]
    assert not {"img", "b", "iframe", "link", "object"} & {tag for tag, _ in page.elements}
    assert not any(key.startswith("on") for _, found in page.elements for key in found)
    words = "".join(page.words)
    assert "a <b>run</b>" in words
    assert HOSTILE in words
    assert "</pre><script>alert(2)</script>" in words


def test_the_data_for_scripts_holds_names_as_they_are(page):
    data = json.loads(page.inside["script", "data"])
    assert data["tiles"]["parties"] == [HOSTILE, "split", "late"]
    assert FEATURE in data["weights"]["names"]
    assert "<" not in page.inside["script", "data"]


def test_a_page_refers_to_nothing_but_itself_and_forbids_it_too(page):
    for _, attributes in page.elements:
        assert not {"src", "srcset", "action", "data", "style"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
    (policy,) = [a["content"] for _, a in page.elements if a.get("http-equiv")]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for kind, found in (("script-src", ("script", "")), ("style-src", ("style", ""))):
        digest = hashlib.sha256(page.inside[found].encode()).digest()
        assert rules[kind] == f"'sha256-{base64.b64encode(digest).decode()}'"
    for text in (page.inside["script", ""], page.inside["style", ""]):
        assert "url(h" not in text
        assert "@import" not in text
        assert "fetch(" not in text


def test_every_table_has_headers_and_every_control_a_name(page):
    tags = [tag for tag, _ in page.elements]
    assert tags.count("table") == tags.count("caption") == tags.count("thead") >= 4
    labelled = {a["for"] for tag, a in page.elements if tag == "label" and "for" in a}
    named = [a for tag, a in page.elements if tag in ("input", "select") and "hidden" not in a]
    assert named
    for attributes in named:
        inside_label = attributes.get("type") == "checkbox"
        assert inside_label or attributes["id"] in labelled or attributes.get("aria-label")


# ── who holds what ────────────────────────────────────────────────────────────────────────────


def holders_by_id(tiles, of):
    """Per sample or feature, the (party, number of its tile) that hold it."""
    found = {}
    for party, held in tiles.items():
        for number, tile in enumerate(held):
            for name in of(tile).tolist():
                found.setdefault(name, set()).add((party, number))
    return found


def test_groups_and_cells_are_those_of_the_tiles(tiles, trained):
    cohorts = cohorts_of(trained.holdings)
    order = [(party, number) for party, held in tiles.items() for number in range(len(held))]
    assert cohorts["tile_party"] == [0, 1, 1, 2]
    for axis, of in (("rows", lambda t: t.ids), ("columns", lambda t: t.features)):
        expected = {}
        for held in holders_by_id(tiles, of).values():
            expected[frozenset(held)] = expected.get(frozenset(held), 0) + 1
        groups = [
            (frozenset(order[t] for t in read_numbers(group["tiles"])), group["size"])
            for group in cohorts[axis]
        ]
        assert dict(groups) == expected
        assert cohorts[f"more_{axis}"] is None
    text = json.dumps(cohorts)
    assert "s1" not in text
    assert HOSTILE not in text


def test_weights_stand_beside_the_parties_that_hold_their_features(tiles, folder):
    source = read_folder(folder)
    sets, places = feature_groups(source)
    expected = holders_by_id(tiles, lambda tile: tile.features)
    for feature, place in zip(source.model.features.tolist(), places, strict=True):
        named = {source.parties[party] for party in read_numbers(sets[place])}
        assert named == {party for party, _ in expected[feature]}


def test_without_the_tiles_holders_are_told_only_if_they_are_certain(tmp_path, settings):
    (west,) = federation()[HOSTILE]
    cut = {
        "a": (west.rows(slice(0, 30)),),
        "b": (west.rows(slice(30, 60)),),
        "c": (Tile.make(west.ids, ["z", "y"], west.block[:, :2]),),
    }
    trained = Federation(cut, Preprocessing()).train(settings)
    write_results(tmp_path, trained, settings, name="grid")
    source = read_folder(tmp_path)
    sets, places = feature_groups(source)
    held = dict(zip(source.model.features.tolist(), [sets[p] for p in places], strict=True))
    assert held == {FEATURE: "0-1", "b": "0-1", "c": "0-1", "z": "2", "y": "2"}
    # Once a party shares some of its features with others than the rest, nobody can tell which.
    source.summary["cohorts"]["columns"][0]["size"] -= 1
    source.summary["cohorts"]["columns"].append({"size": 1, "tiles": "0"})
    assert feature_groups(source) is None


def test_many_groups_are_drawn_as_the_largest_and_a_rest(folder):
    source = read_folder(folder)
    sizes = list(range(1, 1001))
    source.summary["cohorts"]["rows"] = [
        {"size": size, "tiles": "0", "labels": "0"} for size in sizes
    ]
    drawn = tiles_of(source)
    kept = [group["size"] for group in drawn["rows"]]
    assert kept == sizes[-MOST_DRAWN:]
    assert drawn["moreRows"] == {"groups": 1000 - len(kept), "size": sum(sizes) - sum(kept)}


@given(st.sets(st.integers(0, 300)))
def test_numbers_survive_their_short_spelling(numbers):
    rising = sorted(numbers)
    assert read_numbers(spelled(rising)) == rising


# ── curves ────────────────────────────────────────────────────────────────────────────────────


def test_curves_are_the_history(folder, trained):
    drawn = curves_of(read_folder(folder))
    known = certificates(history_frame(trained.result.history))
    loss, gap = drawn["charts"]
    (series,) = [s for s in gap["series"] if s["name"] == "certified gap"]
    grid = drawn["grids"][series["grid"]]
    assert series["y"] == pytest.approx(known["gap"].tolist(), rel=1e-5)
    assert grid["t"] == known["round_trips"].tolist()
    assert grid["b"] == (known["bytes_down"] + known["bytes_up"]).tolist()
    assert grid["c"] == pytest.approx(known["compute_seconds"].tolist(), rel=1e-5)
    assert grid["i"] == known["iteration"].tolist()
    (primal,) = [s for s in loss["series"] if s["name"].startswith("certified loss")]
    assert primal["y"] == pytest.approx(known["primal"].tolist(), rel=1e-5)


@given(
    st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=400),
    st.integers(10, 60),
)
def test_thinned_curves_keep_ends_and_extremes(values, most):
    column = np.array(values)
    kept = thinned([column, -column], most)
    assert len(kept) <= max(most, 6)
    assert {0, len(column) - 1} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()
    if not np.isnan(column).all():
        assert np.nanmin(column[kept]) == np.nanmin(column)
        assert np.nanmax(column[kept]) == np.nanmax(column)


def test_a_long_history_makes_a_small_page(trained, settings, folder, tmp_path):
    short = history_frame(trained.result.history)
    long = pd.concat([short.tail(1)] * 6000, ignore_index=True)
    long["iteration"] = long["certified_at"] = np.arange(1, len(long) + 1)
    rng = np.random.default_rng(0)
    long["gap"] = np.exp(-np.linspace(0, 9, len(long))) * rng.uniform(0.9, 1.1, len(long))
    summary = json.loads((folder / "summary.json").read_text())
    long.to_parquet(tmp_path / "history.parquet")
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    drawn = curves_of(read_folder(tmp_path))
    assert all(len(grid["i"]) <= 1500 for grid in drawn["grids"])
    assert len(json.dumps(drawn)) < 150_000
    (series,) = drawn["charts"][1]["series"]
    assert min(series["y"]) == pytest.approx(long["gap"].min(), rel=1e-5)


# ── who saw what ──────────────────────────────────────────────────────────────────────────────


def test_a_run_that_hid_nothing_says_so(folder, trained, settings, tmp_path):
    summary = json.loads((folder / "summary.json").read_text())
    assert "READABLE" not in (folder / "report.html").read_text("utf-8")
    summary["settings"]["cipher"] = "plain"
    write_files(tmp_path, None, history_frame(trained.result.history), None, summary, settings)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "which hides nothing" in page
    assert "READABLE" in page


def test_a_recorded_run_tells_what_its_messages_held(weft, hospitals, no_plot, tmp_path):
    outcome = weft("train", hospitals.write(), "--out", "r", "--record")
    assert outcome.code == 0, outcome.err
    found = json.loads(weft("audit", "r", "--json").out)
    words = "".join(Page((tmp_path / "r" / "report.html").read_text("utf-8")).words)
    assert f"Every one of the {found['messages']:,} messages was recorded" in words
    assert "✓ every scalar went up under masks" in words
    opened = found["parties"]["south"]["opened"]["inner products"]
    assert f"{opened:,} inner products" in words
    # What is needed to run it again is there too.
    assert "weft train" in words
    assert hospitals.config.strip() in words


# ── exposure and accuracy ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changed", "look"),
    [
        ({"exposure_reached": True}, "exposure reached"),
        ({"exposure_reached": False}, "exposure safe"),
        # Together with earlier runs, as ledgers say.
        ({"exposure_reached": False, "remarks": ["p1 has got 9 sums"]}, "exposure reached"),
        # Folders of an earlier Weft say in words alone what was shown.
        ({"exposure_reached": None}, "exposure"),
    ],
)
def test_exposure_comes_first_and_in_amber_where_it_was_reached(folder, changed, look):
    summary = {**json.loads((folder / "summary.json").read_text()), **changed}
    page = Page(overview(Source(summary, pd.DataFrame(), None, None, None, 0.1)))
    looks = [found.get("class") for tag, found in page.elements if tag in ("p", "div", "h1")]
    # Only the kind of page and its name stand before.
    assert looks[:3] == ["kind", None, look]


def test_a_run_without_guards_is_marked_as_a_pilot(folder):
    summary = json.loads((folder / "summary.json").read_text())
    for terms, marked in ((PILOT, True), (Terms(), False), (Terms(allow_exposure=True), False)):
        told = summary | {"terms": msgspec.to_builtins(terms)}
        page = overview(Source(told, pd.DataFrame(), None, None, None, 0.1))
        assert ("Pilot:" in page) is marked


@pytest.mark.parametrize(
    ("exposed", "sees", "cipher", "reached"),
    [
        ((), "nothing", "pad", False),
        (("a",), "nothing", "pad", True),
        (None, "nothing", "pad", True),
        ((), "weights", "pad", True),
        ((), "nothing", "plain", True),
    ],
)
def test_exposure_is_reached_by_sums_by_agreement_or_without_a_cipher(
    exposed, sees, cipher, reached
):
    assert exposure_reached(exposed, sees, cipher) is reached


@pytest.mark.parametrize(("right", "of"), [(9, 10), (0, 7), (7, 7), (383, 450)])
def test_intervals_are_wilsons(right, of):
    outside = binomtest(right, of).proportion_ci(method="wilson")
    assert wilson_interval(right / of, of) == pytest.approx((outside.low, outside.high))


def test_accuracy_stands_beside_the_majority_and_before_costs(folder):
    source = read_folder(folder)
    known = {"where": "40 images", "samples": 40, "majority": 0.6}
    source.summary["accuracy"] = known | {"federated": 0.9, "central": 0.9, "alone": {"a": 0.7}}
    page = page_of(source)
    assert page.index('id="accuracy"') < page.index('id="costs"')
    words = "".join(Page(page).words)
    assert "90.0% (76.9–96.0)" in words
    assert "always the most frequent class 60.0%" in words


def test_every_phase_of_linear_runs_has_a_name_that_people_know():
    """Those of plug-ins, and of other tests in this process, go by their own names."""
    ours = [n for n, p in declared_phases().items() if p.request.__module__.startswith("weft.")]
    assert len(ours) > 50
    assert [name for name in ours if name_of(name) == name] == []


def test_runs_stand_side_by_side(weft, folder, tmp_path):
    summary = json.loads((folder / "summary.json").read_text())
    known = {"where": "100 images", "samples": 100, "majority": 0.5, "central": 0.9, "alone": {}}
    for name, right, lam in (("one", 0.9, 0.1), ("two", 0.88, 0.2), ("three", 0.6, 0.2)):
        (tmp_path / name).mkdir()
        told = {**summary, "accuracy": known | {"federated": right}, "lambda": lam}
        told["settings"] = summary["settings"] | {"lam": lam}
        (tmp_path / name / "summary.json").write_text(json.dumps(told))
    (tmp_path / "one" / "report.html").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "summary.json").write_text('{"rounds": 3}')
    outcome = weft("report", "--runs", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "left out" in outcome.out
    page = Page((tmp_path / "runs.html").read_text("utf-8"))
    words = "|".join(page.words)
    assert "one predicts best, but within noise of two: " in words
    assert "≈ 88.0% (80.2–93.0)" in words
    assert "|lam|0.1|0.2|0.2" in words.replace("\n", "")
    assert [a["href"] for tag, a in page.elements if tag == "a"] == ["one/report.html"]
    assert "seed" not in page.words
    assert weft("report", "--runs", tmp_path / "one").code == 2
    assert weft("report").code == 2


# ── costs, weights, files ─────────────────────────────────────────────────────────────────────


def test_the_summary_tells_every_phase_and_what_encryption_took(folder, trained):
    summary = json.loads((folder / "summary.json").read_text())
    reading = trained.meter.read()
    phases = summary["phases"].values()
    assert sum(phase["bytes_down"] for phase in phases) == reading.bytes_down
    assert sum(phase["bytes_up"] for phase in phases) == reading.bytes_up
    assert sum(phase["slowest"] for phase in phases) == pytest.approx(reading.slowest)
    spent = summary["encryption"]
    assert spent["parties"]["encrypted"] == trained.encryption.parties.encrypted > 0
    assert spent["slowest"]["seconds"] <= spent["parties"]["seconds"]


def test_weights_are_the_largest_in_both_units(folder, trained):
    data = weights_of(read_folder(folder))
    model = trained.model
    scaled = model.coef[0] / model.scaling[1]
    order = np.argsort(-np.abs(scaled))
    assert [data["names"][row[0]] for row in data["rows"][0]] == model.features[order].tolist()
    assert [row[1] for row in data["rows"][0]] == pytest.approx(scaled[order], rel=1e-5)
    assert [row[2] for row in data["rows"][0]] == pytest.approx(model.coef[0][order], rel=1e-5)
    assert data["scaled"]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=60), st.integers(1, 70))
def test_no_weight_that_is_left_out_is_larger_than_one_shown(values, most):
    weights = np.array(values)
    shown = largest(weights, most)
    expected = np.sort(np.abs(weights))[::-1][:most]
    assert np.abs(weights[shown]).tolist() == expected.tolist()
    assert len(set(shown.tolist())) == len(shown)


def test_whoever_gets_no_model_gets_no_weights(folder, trained, settings, tmp_path):
    summary = json.loads((folder / "summary.json").read_text())
    history = history_frame(trained.result.history)
    write_files(tmp_path, None, history, None, summary, settings)
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert json.loads(page.inside["script", "data"])["weights"] is None
    assert FEATURE not in "".join(page.words) + page.inside["script", "data"]
    # With weights, a page is as private as the model file.
    assert stat.S_IMODE((folder / "report.html").stat().st_mode) == 0o600


def test_the_command_writes_the_same_page_again(weft, folder, tmp_path):
    before = (folder / "report.html").read_bytes()
    again = weft("report", folder, "--out", tmp_path / "again.html")
    assert again.code == 0, again.err
    assert (tmp_path / "again.html").read_bytes() == before
    assert weft("report", folder, "--out", tmp_path / "slow.html", "--latency", 0.8).code == 0
    slow = Page((tmp_path / "slow.html").read_text("utf-8"))
    assert json.loads(slow.inside["script", "data"])["curves"]["latency"] == 0.8


def test_a_folder_of_an_older_weft_gets_a_page_too(weft, folder, tmp_path):
    summary = json.loads((folder / "summary.json").read_text())
    new = ("cohorts", "phases", "encryption", "accuracy", "terms", "gone", "remarks", "command")
    old = {key: value for key, value in summary.items() if key not in (*new, "versions")}
    (tmp_path / "summary.json").write_text(json.dumps(old))
    (tmp_path / "history.csv").write_text((folder / "history.csv").read_text())
    assert weft("report", tmp_path).code == 0
    assert "older Weft" in (tmp_path / "report.html").read_text("utf-8")


def test_other_folders_are_refused_in_one_sentence(weft, tmp_path):
    none = weft("report", tmp_path)
    assert (none.code, none.err.count("\n")) == (2, 1)
    assert "summary.json" in none.err
    (tmp_path / "summary.json").write_text('{"rounds": 3, "settings": {}}')
    other = weft("report", tmp_path)
    assert other.code == 2
    assert "not of a linear model" in other.err


@pytest.mark.release
def test_figures_for_papers_are_drawn_both_ways(weft, folder, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.figure")
    outcome = weft("report", folder, "--out", tmp_path / "r.html", "--figures")
    assert outcome.code == 0, outcome.err
    found = {path.name for path in (tmp_path / "figures").iterdir()}
    kinds = ("convergence", "costs", "coefficients", "tiles")
    assert found == {f"{kind}.{suffix}" for kind in kinds for suffix in ("svg", "png")}
    for kind in kinds:
        assert (tmp_path / "figures" / f"{kind}.png").read_bytes()[:4] == b"\x89PNG"
        assert "</svg>" in (tmp_path / "figures" / f"{kind}.svg").read_text("utf-8")
    # Drawn weights are as private as the model.
    for suffix in ("svg", "png"):
        path = tmp_path / "figures" / f"coefficients.{suffix}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
