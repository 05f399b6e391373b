"""The ledger: every sum over samples is counted once, booked before it is sent, and never lost."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from covering import before_release
from weft.crypto.ciphers.block_format import read_block
from weft.data import SPLITS, Tile, load
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.local_joint_prediction import predict_scores
from weft.privacy.ledger import run_booking as accounts
from weft.privacy.ledger.ledger_file import Book, read_books
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.storage.atomic_files import StorageError

PREPARATION = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
QUICK = {"lam": 1e-2, "gap": 1e-2}


@pytest.fixture(scope="module")
def breast():
    """Two parties with 15 columns each of the same samples."""
    return SPLITS["columns"](load("breast_cancer"), 2).parties


def five(unlabelled=("p4",)):
    """Five parties with some rows and some columns each; one of them has no labels."""
    table = load("breast_cancer")
    held = {
        "p1": (slice(0, 300), slice(0, 10)),
        "p2": (slice(100, 450), slice(8, 16)),
        "p3": (slice(200, 569), slice(16, 24)),
        "p4": (slice(0, 569), slice(24, 27)),
        "p5": (slice(50, 400), slice(27, 30)),
    }
    return {
        name: (
            Tile.make(
                table.ids[rows],
                table.features[columns],
                table.block[rows, columns],
                None if name in unlabelled else table.labels[rows],
            ),
        )
        for name, (rows, columns) in held.items()
    }


def read_by_others(federation, entry):
    """Per shared row of a party, whether another one has its label."""
    party = federation.parties[entry.party]
    labelled = set()
    for name, other in federation.parties.items():
        if name != entry.party:
            for tile in other.data.tiles:
                labelled.update(tile.ids[tile.labelled].tolist())
    read = np.zeros(party.view.n_rows, bool)
    for tile, rows in zip(party.data.tiles, party.view.tile_rows, strict=True):
        read[rows[rows >= 0]] = [i in labelled for i in tile.ids[rows >= 0].tolist()]
    return read[: party.view.n_shared_rows]


def seen_in(trained, federation):
    """Per party and sample, the sums that crossed: read from the recorded messages alone.

    A block of z totals for a party is about all its shared rows, unless it said which it wants or
    has labels of some only; phases are asked once in an undisturbed run.
    """
    received, sent = (
        {name: np.zeros(p.view.n_shared_rows, int) for name, p in federation.parties.items()}
        for _ in range(2)
    )
    wanted = {}
    for entry in trained.channel.transcript:
        view = federation.parties[entry.party].view
        shared = view.n_shared_rows
        if entry.phase in ("hyfdca.weights", "hyfdca.fused"):
            wanted[entry.party] = entry.reply.get("want", entry.reply.get("z_slots"))
        if "z" in entry.message:
            block = read_block(entry.message["z"], "z")
            labelled = np.flatnonzero(view.labelled[view.row_cohort[:shared]])
            rows = np.arange(shared)
            if entry.phase == "hyfdca.step" and wanted[entry.party] is not None:
                rows = wanted[entry.party]
            elif block.slots == len(view.counted_shared_rows) != shared:
                rows = view.counted_shared_rows
            elif block.slots == len(labelled) != shared:
                rows = labelled
            assert block.slots == len(rows), entry.phase
            received[entry.party][rows] += block.width
        if "z" in entry.reply:
            block = read_block(entry.reply["z"], "z")
            rows = entry.reply.get("z_slots", np.arange(shared))
            assert block.slots == len(rows), entry.phase
            # In setting up HyFDCA every holder gets the totals, else only those with the label.
            to_all = entry.phase in ("hyfdca.norms", "hyfdca.gather")
            sent[entry.party][rows] += block.width * (
                to_all | read_by_others(federation, entry)[rows]
            )
    return received, sent


CASES = {
    "cutting planes": {"solver": "cutting-planes"},
    "a path with folds": {"solver": "cutting-planes", "path": (1e-1,), "folds": 2},
    "in groups": {"solver": "cutting-planes", "groups": 3},
    "L-BFGS": {"solver": "lbfgs", "loss": "logistic"},
    "Newton": {"solver": "newton-cg", "loss": "logistic"},
    "HyFDCA": {"gap": None, "iterations": 30},
    "HyFDCA, drawing": {"gap": None, "iterations": 30, "iic": 0.3},
    "HyFDCA, practical": {"gap": None, "iterations": 20, "local": "practical", "iic": 0.3},
    "HyFDCA, theory": {"gap": None, "iterations": 20, "local": "theory"},
}


@pytest.mark.parametrize(
    "case",
    [
        *("a path with folds", "in groups", "HyFDCA, practical"),
        *before_release("cutting planes", "L-BFGS", "HyFDCA, theory"),
        *before_release("Newton", "HyFDCA", "HyFDCA, drawing"),
    ],
)
def test_what_is_counted_is_what_the_recorded_messages_show(case):
    federation = Federation(five(), PREPARATION, record=True)
    trained = federation.train(Settings(**{**QUICK, **CASES[case]}))
    received, sent = seen_in(trained, federation)
    hyfdca = trained.settings.solver == "hyfdca"
    # The first sums of HyFDCA are zero at w = 0 and say nothing; in groups, the model that is
    # closed may be the point that was measured last.
    same = hyfdca or trained.settings.groups > 1
    for name, party in federation.parties.items():
        about = received[name] - party.sum_counter.received
        assert about.min() >= 0, name
        assert about.max() <= same, name
        about = sent[name] - party.sum_counter.shown
        assert about.min() >= 0, name
        assert about.max() <= same, name
    if not hyfdca:
        assert not federation.parties["p4"].sum_counter.received.any()
    assert federation.parties["p1"].sum_counter.received.min() >= 3


def test_only_a_sum_that_somebody_else_gets_counts_as_shown(breast):
    """The one party with labels gets the sums; nobody gets those with its products."""
    first, second = breast
    (other,) = breast[second]
    tiles = {
        first: breast[first],
        second: (Tile.make(other.ids, other.features, other.block),),
    }
    federation = Federation(tiles, Preprocessing(scaling="standard"))
    federation.train(Settings(**QUICK, solver="cutting-planes"))
    here, there = federation.parties[first].sum_counter, federation.parties[second].sum_counter
    assert here.received.min() > 5
    assert not here.shown.any()
    assert not there.received.any()
    assert np.array_equal(there.shown, here.received)
    # Power iteration, in which every holder gets sums, is the exception.
    federation.train(Settings(lam=1e-2, gap=None, iterations=5))
    here, there = federation.parties[first].sum_counter, federation.parties[second].sum_counter
    assert np.array_equal(here.shown, there.received)
    assert there.received.min() > 3
    assert (there.shown > there.received).all()


def test_under_a_cipher_that_sends_whole_blocks_all_rows_count(breast):
    first, second = breast
    (held,) = breast[second]
    labels = held.labels.astype(float)
    labels[100:] = np.nan
    some = Tile.make(held.ids, held.features, held.block, labels)
    tiles = {first: breast[first], second: (some,)}
    settings = Settings(lam=1e-1, gap=1e-1, solver="cutting-planes", cipher="bfv")
    federation = Federation(tiles, Preprocessing(scaling="standard"))
    federation.train(settings)
    assert federation.parties[second].sum_counter.received.min() > 2
    federation.train(Settings(lam=1e-1, gap=1e-1, solver="cutting-planes"))
    received = federation.parties[second].sum_counter.received
    assert (received > 0).sum() == 100


def test_a_question_that_is_asked_again_counts_once(simulate, patchwork):
    settings = Settings(lam=0.05, gap=1e-2, solver="cutting-planes", patience=5.0)
    quiet = simulate(patchwork(), settings)
    quiet.go()
    lost = {
        ("subspace.spread", "north", 2),
        ("subspace.spread", "east", 3),
        ("subspace.search", "west", 2),
    }

    def plan(phase, party, call):
        return "lost" if (phase, party, call) in lost else None

    shaken = simulate(patchwork(), settings, plan=plan)
    shaken.go()
    assert sum(shaken.faults.happened.values()) == 3
    for name, party in quiet.parties.items():
        assert np.array_equal(shaken.parties[name].sum_counter.received, party.sum_counter.received)
        assert np.array_equal(shaken.parties[name].sum_counter.shown, party.sum_counter.shown)


# ── on disk ──────────────────────────────────────────────────────────────────────────────────


def train(tiles, ledger, **changes):
    federation = Federation(tiles, PREPARATION, ledger=ledger)
    trained = federation.train(Settings(**{**QUICK, "solver": "cutting-planes", **changes}))
    return trained, {name: party.sum_counter for name, party in federation.parties.items()}


def test_two_runs_and_a_joint_prediction_add_up(breast, tmp_path):
    ledger = Ledger(tmp_path / "ledger", "breast")
    trained, one = train(breast, ledger)
    _, two = train(breast, ledger, lam=1e-3)
    predict_scores(trained.model, breast, ledger=ledger)
    for name, pages in read_books(ledger.folder).items():
        total = one[name].received[0] + two[name].received[0] + 1
        assert np.array_equal(pages.received, np.full(569, total))
        assert np.array_equal(
            pages.shown, np.full(569, one[name].shown[0] + two[name].shown[0] + 1)
        )
        assert set(pages.foreign.tolist()) == set(pages.fewest.tolist()) == {15}
        kinds = [(run.kind, run.solver, run.federation) for run in pages.runs]
        assert kinds == [
            ("train", "cutting-planes", "breast"),
            ("train", "cutting-planes", "breast"),
            ("predict", "", "breast"),
        ]
        assert [run.received for run in pages.runs] == [
            one[name].received[0],
            two[name].received[0],
            1,
        ]
        assert all(run.ended is not None for run in pages.runs)
        (cohort,) = pages.runs[0].cohorts
        assert (cohort.samples, cohort.holders, cohort.foreign, cohort.fewest) == (569, 2, 15, 15)


def test_samples_that_come_and_go_keep_their_own_count(breast, tmp_path):
    ledger = Ledger(tmp_path / "ledger")

    def part(rows):
        return {
            name: (Tile.make(t.ids[rows], t.features, t.block[rows], t.labels[rows]),)
            for name, (t,) in breast.items()
        }

    _, one = train(part(np.arange(0, 300)), ledger)
    # Other samples, in another order.
    _, two = train(part(np.arange(568, 199, -1)), ledger)
    for name, (tile,) in breast.items():
        pages = Book(ledger.folder, name).read()
        assert len(pages.sample) == 569
        received, shown = pages.of(pages.hashes(tile.ids))
        first, second = one[name].received[0], two[name].received[0]
        expected = np.r_[np.full(200, first), np.full(100, first + second), np.full(269, second)]
        assert np.array_equal(received, expected)
        assert shown[0] == one[name].shown[0]
        assert not pages.of(pages.hashes(np.array(["nobody"], dtype=object)))[0].any()


def test_the_file_holds_no_id_and_opens_for_its_owner_only(breast, tmp_path):
    ledger = Ledger(tmp_path / "ledger", "breast")
    train(breast, ledger)
    (tile,) = breast["p1"]
    files = sorted(ledger.folder.iterdir())
    assert [path.name for path in files] == [".p1.npz.lock", ".p2.npz.lock", "p1.npz", "p2.npz"]
    assert stat.S_IMODE(ledger.folder.stat().st_mode) == 0o700
    keys = set()
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        content = path.read_bytes()
        if path.suffix == ".lock":
            assert not content
            continue
        for name in (*tile.ids[:50], *tile.features):
            assert len(name) < 4 or name.encode() not in content
        keys.add(Book(ledger.folder, path.stem).read().key)
    one, two = (Book(ledger.folder, name).read() for name in ("p1", "p2"))
    assert len(keys) == 2
    assert not set(one.sample.tolist()) & set(two.sample.tolist())


def test_the_same_id_written_otherwise_is_the_same_sample(breast, tmp_path):
    """Ids are compared as matching compares them."""
    ledger = Ledger(tmp_path / "ledger")
    _, one = train(breast, ledger)
    padded = {
        name: (Tile.make([f" {i} " for i in t.ids], t.features, t.block, t.labels),)
        for name, (t,) in breast.items()
    }
    train(padded, ledger)
    pages = Book(ledger.folder, "p1").read()
    assert len(pages.sample) == 569
    assert pages.received.min() == 2 * one["p1"].received[0]


def test_names_of_parties_that_no_file_may_have_are_escaped(tmp_path, patchwork):
    tiles = {f"{name}/5%2F": held for name, held in patchwork().items()}
    ledger = Ledger(tmp_path / "ledger")
    train(tiles, ledger, lam=0.05)
    assert set(read_books(ledger.folder)) == set(tiles)


class Killed(BaseException):
    """The process ends here: nothing after it runs."""


@pytest.mark.parametrize("solver", ["cutting-planes", *before_release("hyfdca")])
def test_a_run_that_is_killed_was_booked_before_it_showed_anything(
    solver, tmp_path, monkeypatch, patchwork
):
    """Also where nothing could tidy up: the files never hold less than was sent and opened."""
    monkeypatch.setattr("weft.privacy.ledger.sum_booking._AHEAD", 5)
    ledger = Ledger(tmp_path / "ledger")
    federation = Federation(patchwork(), PREPARATION, ledger=ledger)
    phases = 0

    def on(handler):
        def answer(phase, message):
            nonlocal phases
            reply = handler(phase, message)
            phases += 1
            books = read_books(ledger.folder) if ledger.folder.is_dir() else {}
            for name, party in federation.parties.items():
                if not party.sum_counter.opened.most and not party.sum_counter.most_shown:
                    continue
                view, (tile,) = party.view, patchwork()[name]
                pages = books[name]
                received, shown = pages.of(pages.hashes(tile.ids))
                place = view.tile_rows[0]
                shared = place < view.n_shared_rows
                for told, booked in (
                    (party.sum_counter.received, received),
                    (party.sum_counter.shown, shown),
                ):
                    assert (booked[shared] >= told[place[shared]]).all()
                assert pages.runs[-1].ended is None
            if phases > 80:
                raise Killed
            return reply

        return answer

    class Watched(accounts.Account):
        def close(self):
            """Killed processes close nothing."""

    monkeypatch.setattr("weft.privacy.ledger.run_booking.Account", Watched)
    monkeypatch.setattr(
        "weft.federation.local_federation.LocalChannel",
        lambda handlers, **options: real({n: on(h) for n, h in handlers.items()}, **options),
    )
    from weft.protocol import LocalChannel as real

    with pytest.raises(Killed):
        federation.train(Settings(lam=1e-3, gap=1e-6, solver=solver))
    assert any(pages.received.any() for pages in read_books(ledger.folder).values())


def test_a_run_that_fails_has_the_true_numbers_in_the_ledger(tmp_path, patchwork):
    ledger = Ledger(tmp_path / "ledger")
    federation = Federation(patchwork(), PREPARATION, ledger=ledger)

    def stop(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        federation.train(Settings(lam=0.05, gap=1e-6, solver="cutting-planes"), progress=stop)
    for name, pages in read_books(ledger.folder).items():
        sum_counter = federation.parties[name].sum_counter
        assert pages.runs[0].ended is not None
        assert pages.received.max() == sum_counter.received.max() > 0
        assert pages.shown.max() == sum_counter.shown.max() > 0


# ── damage ───────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_ledger_stops_a_run_before_it_begins(tmp_path, patchwork):
    ledger = Ledger(tmp_path / "ledger")
    train(patchwork(), ledger, lam=0.05)
    path = Book(ledger.folder, "east").path
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    damages = [b"", whole[:100], whole[:-50], b"not a ledger at all", rng.bytes(len(whole))]
    for damage in damages:
        path.write_bytes(damage)
        federation = Federation(patchwork(), PREPARATION, ledger=ledger, record=True)
        with pytest.raises(StorageError, match="ledger of party east cannot be read") as told:
            federation.train(Settings(lam=0.05, solver="cutting-planes"))
        assert "\n" not in str(told.value)
        assert path.read_bytes() == damage
    path.write_bytes(whole)
    train(patchwork(), ledger, lam=0.05)
    assert len(Book(ledger.folder, "east").read().runs) == 2


def test_no_flipped_byte_makes_a_ledger_forget(tmp_path, patchwork):
    """Either the file is refused, or it says what it said."""
    ledger = Ledger(tmp_path / "ledger")
    train(patchwork(), ledger, lam=0.05)
    book = Book(ledger.folder, "north")
    whole, pages = book.path.read_bytes(), book.read()
    refused = 0
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        book.path.write_bytes(changed)
        try:
            found = book.read()
        except WeftError:
            refused += 1
            continue
        for field in ("sample", "received", "shown", "foreign", "fewest"):
            assert np.array_equal(getattr(found, field), getattr(pages, field)), place
        assert (found.key, found.runs) == (pages.key, pages.runs)
    assert refused > 50


def test_a_ledger_that_cannot_be_written_stops_the_run_before_a_sum_is_sent(tmp_path, patchwork):
    (tmp_path / "ledger").write_text("a file stands here")
    federation = Federation(
        patchwork(), PREPARATION, ledger=Ledger(tmp_path / "ledger"), record=True
    )
    with pytest.raises(WeftError, match="ledger"):
        federation.train(Settings(lam=0.05, solver="cutting-planes"))


def test_a_ledger_that_goes_away_in_the_middle_of_a_run_stops_it(tmp_path, patchwork):
    ledger = Ledger(tmp_path / "ledger")
    train(patchwork(), ledger, lam=0.05)

    def lose(record):
        if record.iteration == 2:
            for path in ledger.folder.iterdir():
                path.unlink()

    federation = Federation(patchwork(), PREPARATION, ledger=ledger)
    with pytest.raises(WeftError, match="in the middle of a run"):
        federation.train(
            Settings(lam=1e-4, gap=1e-8, iterations=200, solver="cutting-planes"), progress=lose
        )
