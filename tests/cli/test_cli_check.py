"""``weft check`` looks ahead: who could work out what, in a page, and what would be refused."""

import json
import re

import pytest

pytestmark = pytest.mark.usefixtures("no_pictures")

VERTICAL = """
name = "two hospitals"

[data]
dataset = "breast_cancer"
split = { name = "columns", parties = 2 }
scaling = "standard"
unit_rows = true

[model]
loss = "hinge"
lambda = 1e-3

[privacy]
allow_pairs = true
allow_exposure = true
"""
HYBRID = """
name = "five hospitals"

[data]
dataset = "breast_cancer"
split = { name = "overlapping", parties = 5, row_share = 0.5, column_share = 0.4, labels = "first" }
scaling = "standard"
unit_rows = true

[model]
loss = "logistic"
lambda = [1e-1, 1e-2]

[solver]
folds = 3

[privacy]
allow_pairs = true
allow_exposure = true
"""
GRID = """
name = "grid"

[data]
dataset = "digits"
split = { name = "grid", k = 5, q = 5 }
unit_rows = true

[model]
lambda = 1e-3

[privacy]
allow_exposure = true
"""
#: The last column of the table is the outcome's neighbour: north lacks one column of south.
SINGLE = """
name = "one column"

[data]
id = "patient"
label = "outcome"

[model]
lambda = 1e-2

[privacy]
allow_pairs = true
allow_exposure = true
min_batch = 5
allow_one_column = ALLOWED

[[party]]
name = "north"
file = "north.csv"

[[party]]
name = "south"
file = "south.csv"
POLICY
"""


@pytest.fixture(scope="module")
def told():
    """What was said of configs that need no other file, in a folder without one."""
    return {}


@pytest.fixture
def checked(weft, tmp_path, told):
    """Checks a config; its text is given back with blanks and line breaks as one blank."""

    def run(text, *options):
        config = tmp_path / "config.toml"
        config.write_text(text, encoding="utf-8")
        alone = text in (VERTICAL, HYBRID, GRID) and [*tmp_path.iterdir()] == [config]
        if alone and (text, options) in told:
            return told[text, options]
        outcome = weft("check", "config.toml", *options)
        outcome.flat = " ".join(outcome.out.split())
        if alone:
            told[text, options] = outcome
        return outcome

    return run


def test_the_price_of_noise_in_sums_is_told(checked):
    text = VERTICAL.replace('scaling = "standard"\nunit_rows = true', 'scaling = "none"')
    outcome = checked(text + "\n[sum_noise]\nmultiplier = 5.0\n")
    assert outcome.code == 0
    found = re.search(r"ρ = 0.02 for each; about (\d+) of them come to ρ = ([\d.]+)", outcome.flat)
    assert float(found[2]) == pytest.approx(0.02 * int(found[1]), rel=1e-2)
    assert "for δ = 1e-06. As weights, the noise of one sum is about" in outcome.flat


def test_two_parties_are_told_what_each_can_work_out_about_the_other(checked):
    outcome = checked(VERTICAL)
    assert outcome.code == 0
    assert "p1 and p2 each get about 12 sums on each of 569 samples" in outcome.flat
    assert "of which the other has 15 columns that they lack" in outcome.flat
    assert "exactly with 15 of the samples known from elsewhere" in outcome.flat
    assert "p1 and p2 can each compute the other's part of every sum" in outcome.flat
    assert "allow_pairs = true lets two parties add up alone; without it: refused" in outcome.flat
    assert "allow_exposure = true lets p1 and p2 get as many sums as they lack" in outcome.flat
    assert "the losses of p1 and p2 as one sum" in outcome.flat
    assert "as planned (cutting-planes): about 12 sums, perhaps enough for p1 and" in outcome.flat
    assert 'name = "hyfdca" in [solver]: about' in outcome.flat
    assert "no ledger of earlier runs was found" in outcome.flat
    assert "Ready: weft train config.toml" in outcome.out


@pytest.mark.parametrize("config", [VERTICAL, HYBRID, GRID], ids=["vertical", "hybrid", "grid"])
def test_what_is_said_fits_a_page_of_80_columns(checked, config):
    lines = checked(config).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 100


def test_many_parties_in_the_same_position_are_named_once(checked):
    outcome = checked(GRID)
    assert outcome.code == 0
    # The first column of the grid has 12 of the 64 features, all others 13.
    assert outcome.flat.count("they lack.") == 2
    assert "r1c1, r2c1, r3c1, r4c1 and r5c1 each get about" in outcome.flat
    assert "r1c2, r1c3, r1c4, r1c5 and 16 more each get about" in outcome.flat
    assert "359 to 360 samples of which 4 other parties have 51 columns" in outcome.flat


def test_who_learns_labels_is_named(checked):
    outcome = checked(HYBRID)
    assert "p2, p3, p4 and p5 each learn those of" in outcome.flat
    assert "columns at several parties: 7 with 2 holders" in outcome.flat


def test_json_has_all_of_it(checked):
    outcome = checked(VERTICAL, "--json")
    found = json.loads(outcome.out)
    look = found["outlook"]
    assert [e["receiver"] for e in look["exposures"]] == ["p1", "p2"]
    for exposure in look["exposures"]:
        assert (exposure["samples"], exposure["columns"], exposure["spent"]) == (569, 15, 0)
        assert exposure["standing"] == "close"
    assert look["pairs"] == [{"parties": ["p1", "p2"], "samples": 569, "receivers": ["p1", "p2"]}]
    assert look["terms"]["allow_pairs"] is True
    assert look["learn_labels"] == {}
    assert look["coordinator"] == {"groups": 1, "losses_of": ["p1", "p2"]}
    assert {way["solver"]: way["enough"] for way in look["ways"]} == {
        "hyfdca": ["p1", "p2"],
        "cutting-planes": [],
        "span-newton": ["p1", "p2"],
    }
    assert look["ways"][0]["what"] == "as planned (cutting-planes)"
    assert look["ways"][0]["perhaps"] == ["p1", "p2"]
    assert found["refusals"] == []


def test_every_refusal_is_told_and_ends_in_exit_code_2(checked):
    outcome = checked(VERTICAL.replace("allow_pairs = true", ""))
    assert outcome.code == 2
    assert "REFUSED by p1 and p2: sums over 569 samples" in outcome.flat
    assert "Ready" not in outcome.out
    # The rest is said all the same.
    assert "of which the other has 15 columns that they lack" in outcome.flat
    assert outcome.err.startswith("weft: this run would be refused: party p1 refuses sums over 569")
    assert outcome.err.count("\n") == 1
    told = checked(VERTICAL.replace("allow_pairs = true", ""), "--json")
    assert told.code == 2
    assert [r["party"] for r in json.loads(told.out)["refusals"]] == ["p1", "p2"]


def test_small_groups_that_are_left_out_are_counted(checked):
    outcome = checked(HYBRID.replace("allow_pairs = true", "allow_pairs = true\nmin_batch = 12"))
    assert "min_batch = 12 leaves out" in outcome.flat
    assert "samples in smaller groups" in outcome.flat


def test_what_earlier_runs_spent_comes_on_top(checked, weft):
    checked(VERTICAL)
    assert weft("train", "config.toml", "--out", "one").code == 0
    outcome = checked(VERTICAL)
    assert "sums of earlier runs come on top" in outcome.flat
    assert "no ledger of earlier runs" not in outcome.flat
    found = json.loads(checked(VERTICAL, "--json").out)["outlook"]
    assert all(e["spent"] > 5 for e in found["exposures"])
    assert all(e["standing"] != "not reached" for e in found["exposures"])
    elsewhere = json.loads(checked(VERTICAL, "--json", "--ledger", "other").out)["outlook"]
    assert all(e["spent"] == 0 for e in elsewhere["exposures"])


def test_checking_writes_nothing(checked, told, tmp_path):
    told.clear()
    checked(VERTICAL)
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def single(tmp_path, hospitals, allowed, policy=""):
    """South has one column that north lacks."""
    hospitals.north.to_csv(tmp_path / "north.csv", index=False)
    hospitals.south.drop(columns="pressure").to_csv(tmp_path / "south.csv", index=False)
    return SINGLE.replace("ALLOWED", allowed).replace("POLICY", policy)


def test_a_single_foreign_column_is_known_at_once_and_refused(checked, hospitals, tmp_path):
    outcome = checked(single(tmp_path, hospitals, "false"))
    assert outcome.code == 2
    assert "1 column that it lacks. KNOWN AT ONCE" in outcome.flat
    assert "REFUSED by south" in outcome.flat
    outcome = checked(single(tmp_path, hospitals, "true"))
    assert outcome.code == 0
    assert "allow_one_column = true gives a single column away" in outcome.flat


@pytest.mark.parametrize("allowed", [True, False])
def test_a_site_can_refuse_a_forecast_of_exposure(checked, hospitals, tmp_path, allowed, weft):
    """By its own policy, which also stops the run itself."""
    (tmp_path / "policy.toml").write_text(f"allow_exposure = {str(allowed).lower()}\n")
    config = single(tmp_path, hospitals, "true", 'policy = "policy.toml"')
    outcome = checked(config)
    trained = weft("train", "config.toml")
    if allowed:
        assert outcome.code == trained.code == 0
        return
    assert outcome.code == 2
    assert "REFUSED by south: to show north as many sums as north lacks columns" in outcome.flat
    assert trained.code == 2
    assert "south refuses to show more sums about 40 of its samples" in trained.err
    assert "allow_exposure = true" in trained.err


ROWS = """
name = "three clinics"

[data]
id = "patient"
label = "outcome"
scaling = "standard"

[model]
lambda = 1e-1

[solver]
gap = 4e-1

[privacy]
min_batch = 5
allow_small_changes = ALLOWED
"""


def clinics(folder, tables, allowed="false"):
    """A config of parties with the same columns, a file each."""
    parties = ""
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
        parties += f'\n[[party]]\nname = "{name}"\nfile = "{name}.csv"\n'
    return ROWS.replace("ALLOWED", allowed) + parties


def test_a_run_that_differs_by_a_few_samples_is_refused_before_it_begins(
    checked, hospitals, tmp_path, weft
):
    whole = hospitals.north
    tables = {"a": whole[:12], "b": whole[12:26], "c": whole[26:]}
    assert checked(clinics(tmp_path, tables)).code == 0
    assert weft("train", "config.toml", "--out", "one").code == 0
    before = (tmp_path / "ledger" / "b.npz").read_bytes()
    changed = {**tables, "b": whole[13:26]}
    outcome = checked(clinics(tmp_path, changed))
    trained = weft("train", "config.toml", "--out", "two")
    assert outcome.code == trained.code == 2
    assert "REFUSED by b: to train, because so few of its samples changed" in outcome.flat
    assert "(1 went since its run of" in outcome.flat
    assert "party b refuses to train, because so few of its samples changed" in trained.err
    assert trained.err.count("\n") == 1
    assert not (tmp_path / "two").exists()
    found = json.loads(checked(clinics(tmp_path, changed), "--json").out)
    assert found["outlook"]["small_changes"]["b"]["went"] == 1
    assert [refusal["party"] for refusal in found["refusals"]] == ["b"]
    assert (tmp_path / "ledger" / "b.npz").read_bytes() == before
    outcome = checked(clinics(tmp_path, changed, "true"))
    assert outcome.code == 0
    assert "allow_small_changes = true lets the difference of two runs show a few" in outcome.flat
    assert "b's (1 went since its run of" in outcome.flat
    assert weft("train", "config.toml", "--out", "two").code == 0
    told = " ".join(weft("ledger", "ledger", "--party", "b").out.split())
    assert "b: 14 samples, 2 runs" in told
    assert "13 to 14 samples in feature sums that others see; the last 2 different sets" in told


def test_inner_products_are_announced_where_dual_variables_are(checked):
    assert "all inner products between the foreign parts" in checked(VERTICAL).flat
    assert (
        "inner products between"
        not in checked(GRID.replace('"grid", k = 5, q = 5', '"rows", parties = 5')).flat
    )
