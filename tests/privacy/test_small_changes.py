"""Samples come and go between two runs in large groups or not at all: ledgers remember."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import before_release
from weft.data import Tile, load
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.guards.min_batch_across_runs import standing_alone
from weft.privacy.ledger.ledger_file import Book
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Checkpointing
from weft.storage.atomic_files import load_arrays, save_arrays

QUICK = Settings(lam=1e-1, gap=0.5, solver="cutting-planes", cipher="plain")
REFUSED = "party p2 refuses to train, because so few of its samples changed"


@pytest.fixture(scope="module")
def table():
    """Scaled beforehand: a run that scales takes a third longer, and no rule here is about it."""
    whole = load("breast_cancer")
    return replace(whole, block=(whole.block - whole.block.mean(axis=0)) / whole.block.std(axis=0))


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger")


@pytest.fixture(scope="module")
def first_run(three, tmp_path_factory):
    """The ledgers after a run on p2's first rows, made once."""
    ledger = Ledger(tmp_path_factory.mktemp("first") / "ledger")
    train(three(FIRST), ledger)
    return ledger.folder


@pytest.fixture
def after_first(first_run, ledger):
    """A copy of those ledgers."""
    shutil.copytree(first_run, ledger.folder)
    return ledger


def tile(table, rows):
    return Tile.make(table.ids[rows], table.features, table.block[rows], table.labels[rows])


@pytest.fixture(scope="module")
def three(table):
    """Three parties with all columns of some rows each; p2's rows, or its tile, are given."""

    def make(second):
        given_rows = not isinstance(second, Tile)
        return {
            "p1": (tile(table, np.arange(100)),),
            "p2": (tile(table, np.asarray(second)) if given_rows else second,),
            "p3": (tile(table, np.arange(400, 500)),),
        }

    return make


def careful(**changes):
    """Careful terms, but for encryption, which takes time and changes nothing here."""
    return Terms(ciphers=("plain", "pad"), **changes)


def train(tiles, ledger, settings=QUICK, preprocessing=None, **terms):
    preprocessing = preprocessing or Preprocessing()
    return Federation(tiles, preprocessing, terms=careful(**terms), ledger=ledger).train(settings)


def refused(tiles, ledger, **terms):
    """What a run is refused with, before p2 has sent anything but tokens."""
    federation = Federation(
        tiles,
        Preprocessing(),
        terms=careful(**terms),
        ledger=ledger,
        record=True,
    )
    before = Book(ledger.folder, "p2").path.read_bytes()
    with pytest.raises(WeftError, match=REFUSED) as told:
        federation.train(QUICK)
    assert "\n" not in str(told.value)
    assert Book(ledger.folder, "p2").path.read_bytes() == before
    return str(told.value)


FIRST = np.arange(100, 200)
CHANGES = {
    "none": (FIRST, None),
    "none, in another order": (FIRST[::-1], None),
    "one more": (np.arange(100, 201), "1 came since"),
    "nine more": (np.arange(100, 209), "9 came since"),
    "ten more": (np.arange(100, 210), None),
    "one fewer": (np.arange(101, 200), "1 went since"),
    "ten fewer": (np.arange(110, 200), None),
    "one for another": (np.arange(101, 201), "1 came and 1 went since"),
    "ten for ten others": (np.arange(110, 210), None),
    "all others": (np.arange(200, 300), None),
    "ten more, one fewer": (np.arange(101, 210), None),
    "five for five others": (np.arange(105, 205), "5 came and 5 went since"),
}


#: One on either side of the limit for all that can happen.
SOME = ("none", "one more", "ten more", "one fewer", "one for another")


@pytest.mark.parametrize(
    "case", [*SOME, *before_release(*(case for case in CHANGES if case not in SOME))]
)
def test_a_few_samples_more_or_fewer_are_refused(case, three, after_first):
    rows, words = CHANGES[case]
    if words is None:
        train(three(rows), after_first)
        assert len(Book(after_first.folder, "p2").read().runs) == 2
        return
    told = refused(three(rows), after_first)
    assert words in told
    assert "let at least min_batch = 10 of a group come or go together, or none, or agree" in told
    assert Book(after_first.folder, "p2").read().runs[0].began[:10] in told
    if case == "one for another":
        # What was refused is not remembered, so that nothing else is refused for it.
        train(three(FIRST), after_first)


@pytest.mark.parametrize("corrected", [9, 10, *before_release(1)])
@pytest.mark.parametrize("what", ["label", "cell"])
def test_corrected_samples_count_too(what, corrected, table, three, after_first):
    """A label that changes sides shows the row twice, a cell its change."""
    before = tile(table, FIRST)
    labels, block = before.labels.copy(), before.block.copy()
    if what == "label":
        labels[:corrected] = 1 - labels[:corrected]
    else:
        block[:corrected, 3] += 1.0
    after = three(replace(before, labels=labels, block=block))
    if corrected < 10:
        assert f"{corrected} got other cells or labels since" in refused(after, after_first)
    else:
        train(after, after_first)


def test_columns_in_another_order_are_the_same_samples(table, three, after_first):
    held = tile(table, FIRST)
    train(three(held.columns(np.arange(held.m)[::-1])), after_first)


def test_a_new_column_does_not_hide_a_new_sample(table, ledger):
    """All rows are others then, but in the old columns one is new."""

    def parties(columns, rows):
        return {
            name: (tile(table, mine).columns(np.arange(columns)),)
            for name, mine in (("p1", np.arange(100)), ("p2", rows), ("p3", np.arange(400, 500)))
        }

    train(parties(20, FIRST), ledger)
    assert "1 came since" in refused(parties(21, np.arange(100, 201)), ledger)
    train(parties(21, FIRST), ledger)


def test_terms_and_min_batch_decide(three, after_first):
    more = three(np.arange(100, 203))
    assert "3 came" in refused(more, after_first)
    train(more, after_first, allow_small_changes=True)
    # These three are known now; nothing that shows no others is refused for their sake.
    train(more, after_first)
    train(three(FIRST), after_first)
    train(three(np.arange(100, 223)), after_first)
    # But two of the three without the third are new.
    refused(three(np.arange(100, 202)), after_first)
    refused(three(np.arange(100, 202)), after_first, min_batch=2)
    train(three(np.arange(100, 202)), after_first, min_batch=1)


def test_the_next_run_is_compared_with_several_before(three, after_first):
    train(three(np.arange(100, 120)), after_first)
    assert "1 went since" in refused(three(np.arange(100, 199)), after_first)
    assert "1 came since" in refused(three(np.arange(100, 121)), after_first)
    train(three(np.arange(100, 140)), after_first)


def test_combinations_of_runs_count_like_differences(three, after_first):
    """Each two differ by ten or more, but the fourth minus the second and third is one sample."""
    ten, others = np.arange(200, 210), np.arange(210, 220)
    train(three([*FIRST, *ten]), after_first)
    train(three([*FIRST, *others]), after_first)
    assert "1 came" in refused(three([*FIRST, *ten, *others, 230]), after_first)
    train(three([*FIRST, *ten, *others]), after_first)


def test_random_parts_of_the_samples_are_no_small_changes(three, ledger):
    """Some few may be missing in all of several runs: no combination singles them out."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        train(three(rng.choice(np.arange(100, 300), 160, replace=False)), ledger)
    present = Book(ledger.folder, "p2").read().attended.places != 0
    _, sizes = np.unique(present, axis=1, return_counts=True)
    assert sizes.min() < 10


def test_equal_runs_take_one_place_and_the_oldest_is_forgotten(three, ledger, monkeypatch):
    most = 2
    monkeypatch.setattr("weft.privacy.ledger.earlier_samples.MOST_RUNS", most)
    train(three(FIRST), ledger)
    for count in range(20, 20 + 10 * most, 10):
        train(three(np.arange(100, 100 + count)), ledger)
        train(three(np.arange(100, 100 + count)), ledger)
    pages = Book(ledger.folder, "p2").read()
    assert len(pages.runs) == 1 + 2 * most
    # Of the first twenty, six have a class that fewer than min_batch of them have.
    sizes = [14, *range(30, 20 + 10 * most, 10)]
    assert [n for _, n in pages.attended.sizes] == sizes
    assert len(pages.attended.sample) == 10 + 10 * most
    # Only the first run had sample 195 without 180 to 189.
    train(three([*np.arange(100, 180), *np.arange(190, 200)]), ledger)


# ── who takes part ───────────────────────────────────────────────────────────────────────────


def test_ten_samples_that_others_hold_too_now_are_no_small_change(table, three, after_first):
    tiles = three(FIRST)
    shared = (tile(table, np.r_[400:500, 100:110]),)
    train({**tiles, "p3": shared}, after_first, allow_pairs=True)


def test_what_min_batch_leaves_out_takes_no_part(table, three, after_first):
    """Three samples that p3 has got too are a group of their own, too small to train on."""
    tiles = {**three(FIRST), "p3": (tile(table, np.r_[400:500, 100:103]),)}
    assert "3 went since" in refused(tiles, after_first, allow_pairs=True)


def test_each_group_counts_for_itself(table, three, ledger):
    """Of five new samples of its own and ten that p3 knows, p3 does not know five."""
    shared = np.arange(100, 130)
    both = {**three(FIRST), "p3": (tile(table, np.r_[400:500, shared]),)}
    train(both, ledger, allow_pairs=True)
    new, known = np.arange(200, 205), np.arange(210, 220)
    tiles = {
        **three([*FIRST, *new, *known]),
        "p3": (tile(table, np.r_[400:500, shared, known]),),
    }
    assert "5 came since" in refused(tiles, ledger, allow_pairs=True)


def test_without_shared_columns_nothing_is_remembered(table, ledger):
    """Sums over features stay at home in a vertical federation."""
    held = tile(table, FIRST)
    parties = {f"p{k}": (held.columns(np.arange(10 * k, 10 * k + 10)),) for k in range(3)}
    scaled = Preprocessing(scaling="standard")
    train(parties, ledger, preprocessing=scaled)
    fewer = {name: (held.rows(slice(1, None)),) for name, (held,) in parties.items()}
    train(fewer, ledger, preprocessing=scaled)
    assert not Book(ledger.folder, "p1").read().attended.runs


def test_open_runs_are_remembered_for_careful_ones(three, ledger):
    train(three(FIRST), ledger, min_batch=1)
    assert "1 came since" in refused(three(np.arange(100, 201)), ledger)


def test_without_a_ledger_nobody_remembers(three):
    train(three(FIRST), None)
    train(three(np.arange(100, 201)), None)


# ── what counts as a run ─────────────────────────────────────────────────────────────────────


def test_a_run_that_ends_before_any_feature_sum_is_none(three, ledger):
    shown = Settings(lam=1e-1, gap=0.5, solver="cutting-planes", coordinator_sees="weights")
    with pytest.raises(WeftError, match="refuses coordinator_sees"):
        train(three(FIRST), ledger, shown, Preprocessing())
    assert not ledger.folder.exists()
    # With scaling, sums over columns have been shown when settings are refused.
    with pytest.raises(WeftError, match="refuses coordinator_sees"):
        train(three(FIRST), ledger, shown, Preprocessing(scaling="standard"))
    assert "1 came since" in refused(three(np.arange(100, 201)), ledger)


@pytest.mark.parametrize("solver", ["cutting-planes", "hyfdca"])
def test_a_run_counts_before_its_first_feature_sum_is_sent(solver, three, ledger, monkeypatch):
    """Also where the process is killed at once."""
    from weft.protocol import LocalChannel as Real

    class Killed(BaseException):
        pass

    def on(handler):
        def answer(phase, message):
            reply = handler(phase, message)
            if getattr(reply, "v", None) is not None:
                raise Killed
            return reply

        return answer

    monkeypatch.setattr(
        "weft.federation.local_federation.LocalChannel",
        lambda handlers, **how: Real({n: on(h) for n, h in handlers.items()}, **how),
    )
    monkeypatch.setattr("weft.privacy.ledger.run_booking.Account.close", lambda self: None)
    with pytest.raises(Killed):
        train(three(FIRST), ledger, Settings(lam=1e-1, gap=0.5, solver=solver), Preprocessing())
    pages = Book(ledger.folder, "p1").read()
    assert pages.attended.sizes == [(pages.runs[0].began, 100)]
    assert pages.runs[0].ended is None


def test_a_resumed_run_is_the_same_run(three, ledger, tmp_path):
    store = tmp_path / "checkpoints"
    store.mkdir()
    settings = Settings(lam=1e-1, gap=None, iterations=8, solver="hyfdca", norms="cohort")

    def go(resume, progress=None):
        federation = Federation(
            three(FIRST),
            Preprocessing(scaling="standard", unit_rows=True),
            store=store,
            terms=Terms(),
            ledger=ledger,
        )
        saving = Checkpointing(store, 2, resume)
        return federation.train(settings, checkpointing=saving, progress=progress)

    def stop(record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(False, stop)
    assert go(True).result.history[-1].iteration == 8
    assert len(Book(ledger.folder, "p2").read().attended.runs) == 1


@pytest.mark.parametrize("changed", [0, 1])
def test_another_storage_hides_no_changed_sample_and_invents_none(
    changed, three, table, after_first
):
    """Rounded cells look changed, all of them or a few; so storage stays, whatever they are."""
    held = tile(table, FIRST)
    block = held.block.copy()
    block[:changed] *= 1.5
    rounded = replace(held, block=block).in_single_precision()
    before = Book(after_first.folder, "p2").path.read_bytes()
    with pytest.raises(
        WeftError, match=r"p2 refuses to train on column \(storage\) by another rule"
    ):
        train(three(rounded), after_first)
    assert Book(after_first.folder, "p2").path.read_bytes() == before


def test_a_party_with_a_ledger_keeps_all_tables_in_one_storage(three, table, ledger):
    tiles = three(FIRST)
    tiles["p2"] = (tile(table, FIRST[:50]), tile(table, FIRST[50:]).in_single_precision())
    with pytest.raises(WeftError, match="p2 keeps one table in single precision and another"):
        train(tiles, ledger)


# ── the file ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("format"),
        lambda arrays: arrays.update(format=np.array([1])),
        lambda arrays: arrays.pop("attended.places"),
        lambda arrays: arrays.update({"attended.runs": np.array(["once"] * 3)}),
        lambda arrays: arrays.update({"versions.sample": arrays["versions.sample"][::-1]}),
    ],
)
def test_an_older_or_damaged_ledger_is_one_sentence(damage, three, after_first):
    path = Book(after_first.folder, "p2").path
    arrays = load_arrays(path)
    damage(arrays)
    save_arrays(path, arrays)
    with pytest.raises(WeftError, match="ledger of party p2 cannot be read") as told:
        train(three(FIRST), after_first)
    assert "move that file away" in str(told.value)
    assert "\n" not in str(told.value)


def test_no_id_stands_in_the_file(three, after_first, table):
    whole = Book(after_first.folder, "p2").path.read_bytes()
    first, second = (Book(after_first.folder, name).read() for name in ("p1", "p2"))
    assert all(str(i).encode() not in whole for i in table.ids[FIRST] if len(str(i)) > 4)
    assert len(np.intersect1d(first.hashes(table.ids), second.hashes(table.ids))) == 0


# ── the rule ─────────────────────────────────────────────────────────────────────────────────


def test_who_comes_with_many_of_another_group_stands_alone_all_the_same():
    """Two come to ten of the first group; ten come to the second, and one of it goes.

    Whoever holds samples of one group tells it from the other, so that two sums differ by the two;
    in the second they differ by eleven, ten of which are no few.
    """
    group = np.repeat([0, 0, 1, 1], [10, 2, 10, 1])
    before = np.repeat([True, False, False, True], [10, 2, 10, 1])
    now = np.repeat([True, True, True, False], [10, 2, 10, 1])
    alone = standing_alone(np.stack([before, now]), group, 5)
    assert np.flatnonzero(alone).tolist() == [10, 11]


LEAST = 3


@given(
    st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=2, max_size=4),
)
def test_no_combination_of_runs_that_are_let_through_shows_a_few(wished):
    """Runs over blocks of one or more samples; some samples take part in all of them."""
    sizes = np.array([1, 1, 1, 2, 2, 3, 3, 4, 5])
    block = np.repeat(np.arange(len(sizes)), sizes)
    core = np.ones(LEAST, bool)
    runs = [np.r_[core, np.zeros(len(block), bool)]]
    for wish in wished:
        asked = np.r_[core, np.array(wish)[block]]
        present = np.stack([*runs, asked])
        alone = standing_alone(present, np.zeros(present.shape[1], np.int64), LEAST)
        differences = [(run != asked).sum() for run in runs]
        if any(0 < count < LEAST for count in differences):
            assert alone.any()
        if not alone.any():
            runs.append(asked)
    stacked = np.stack(runs).astype(int)
    for factors in product((-2, -1, 0, 1, 2), repeat=len(runs)):
        count = int((np.array(factors) @ stacked != 0).sum())
        assert count == 0 or count >= LEAST
