"""Runs at the same time in one ledger: nothing is lost, and each sees what the others booked."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import msgspec
import numpy as np
import pytest

from weft.data import SPLITS, Tile, load
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN, Terms
from weft.privacy.agreement import Consent
from weft.privacy.ledger.ledger_file import Book
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import LocalChannel
from weft.solvers.run_settings import Settings
from weft.storage.atomic_files import StorageError, locked

FEW = Settings(lam=1e-2, gap=0.5, solver="cutting-planes")

#: Processes of their own that have what they import from one.
SOME_RUNS = """
import json, os, sys
from pathlib import Path
from weft.solvers.run_settings import Settings
from weft.data import SPLITS, load
from weft.federation.local_federation import Federation, Preprocessing
from weft.privacy.ledger import sum_booking
from weft.privacy.ledger.run_booking import Ledger

sum_booking._AHEAD, sum_booking._SHARE = 1, 10**9  # Many writes.
tiles = SPLITS["columns"](load("breast_cancer").rows(slice(0, 100)), 2).parties

def train():
    ledger = Ledger(Path(sys.argv[1]))
    federation = Federation(tiles, Preprocessing(scaling="standard"), ledger=ledger)
    federation.train(Settings(lam=1e-1, gap=5e-1, solver="cutting-planes"))
    sum_counter = federation.parties["p1"].sum_counter
    shown = [(int(sum_counter.received[0]), int(sum_counter.shown[0]))]
    print(json.dumps(shown), flush=True)

children = []
for _ in range(3):
    children.append(os.fork())
    if not children[-1]:
        train()
        os._exit(0)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.release
def test_what_processes_write_at_once_adds_up(tmp_path):
    folder = tmp_path / "ledger"
    command = [sys.executable, "-c", SOME_RUNS, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    told = [pair for line in done.stdout.splitlines() for pair in json.loads(line)]
    assert len(told) == 3
    pages = Book(folder, "p1").read()
    received, shown = np.sum(told, axis=0)
    assert set(pages.received.tolist()) == {received}
    assert set(pages.shown.tolist()) == {shown}
    assert shown > 3 * 3
    assert sorted((run.received, run.shown) for run in pages.runs) == sorted(map(tuple, told))
    assert all(run.ended is not None for run in pages.runs)
    # They were at it at the same time, else this says nothing.
    starts = sorted(run.began for run in pages.runs)
    assert len(set(starts)) < len(starts)


def test_only_one_at_a_time_gets_a_lock(tmp_path):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(20):
            with locked(tmp_path / "book.npz"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_whoever_waits_too_long_for_a_lock_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.storage.atomic_files._PATIENCE", 0.05)
    path = tmp_path / "book.npz"
    with (
        locked(path),
        pytest.raises(StorageError, match=r"\.book\.npz\.lock: cannot be locked \(another run"),
        locked(path),
    ):
        raise AssertionError("two hold the lock")
    with locked(path):
        assert path.parent.joinpath(".book.npz.lock").exists()


# ── what one run sees of another ─────────────────────────────────────────────────────────────


@pytest.fixture
def meanwhile(monkeypatch):
    """Let something happen in the middle of the next run, when it first comes to a phase."""

    def arrange(at, happen):
        pending = [happen]

        def on(handler):
            def answer(phase, message):
                if phase.name == at and pending:
                    pending.pop()()
                return handler(phase, message)

            return answer

        def channel(handlers, **how):
            # Runs in the middle are not disturbed.
            monkeypatch.setattr("weft.federation.local_federation.LocalChannel", LocalChannel)
            return LocalChannel({name: on(h) for name, h in handlers.items()}, **how)

        monkeypatch.setattr("weft.federation.local_federation.LocalChannel", channel)

    return arrange


@pytest.fixture(scope="module")
def breast():
    return SPLITS["columns"](load("breast_cancer"), 2).parties


def strict(tiles, folder, name):
    """One party forbids exposure; it does not mind anything else."""
    consents = {party: Consent(party) for party in tiles}
    consents[name] = Consent(name, msgspec.structs.replace(OPEN, allow_exposure=False))
    return Federation(
        tiles, Preprocessing(scaling="standard"), consents=consents, ledger=Ledger(folder)
    )


def test_a_strict_party_counts_what_another_run_shows_meanwhile(
    breast, tmp_path, meanwhile, monkeypatch
):
    """Samples lack 15 columns at the other party: one run is not too much, two are."""
    # By the forecast already the first would be, which errs on the careful side here.
    monkeypatch.setattr("weft.privacy.ledger.run_booking.Account.foresee", lambda *_: None)
    alone = strict(breast, tmp_path / "alone", "p1")
    alone.train(FEW)
    assert 15 / 2 < alone.parties["p1"].sum_counter.shown.max() < 15

    monkeypatch.setattr("weft.privacy.ledger.sum_booking._AHEAD", 1)
    folder = tmp_path / "ledger"
    other = Federation(breast, Preprocessing(scaling="standard"), ledger=Ledger(folder))
    meanwhile("subspace.spread", lambda: other.train(FEW))
    with pytest.raises(WeftError, match="party p1 refuses to show more sums about 569"):
        strict(breast, folder, "p1").train(FEW)
    pages = Book(folder, "p1").read()
    # The sum that was refused is counted, too.
    assert pages.shown.max() == 15
    assert all(run.ended is not None for run in pages.runs)


def test_a_strict_party_does_not_count_what_another_run_has_taken_back(breast, tmp_path, meanwhile):
    """The run before it has booked far more than it shows when this one begins."""
    folder = tmp_path / "ledger"
    few = Settings(lam=1.0, gap=0.5, solver="cutting-planes")
    first = Federation(breast, Preprocessing(scaling="standard"), ledger=Ledger(folder))
    second = strict(breast, folder, "p1")

    def begin():
        with pytest.raises(WeftError, match="those that runs under way have booked"):
            second.train(few)

    meanwhile("subspace.close", begin)
    first.train(few)
    second.train(few)
    runs = Book(folder, "p1").read().runs
    assert [run.ended is not None for run in runs] == [True, True]


def test_a_strict_party_that_is_refused_at_once_has_shown_nothing(breast, tmp_path):
    folder = tmp_path / "ledger"
    for _ in range(2):
        Federation(breast, Preprocessing(scaling="standard"), ledger=Ledger(folder)).train(FEW)
    before = Book(folder, "p1").path.read_bytes()
    with pytest.raises(WeftError, match="party p1 refuses to show more sums"):
        strict(breast, folder, "p1").train(FEW)
    assert Book(folder, "p1").path.read_bytes() == before


def test_runs_that_begin_together_still_compare_their_samples(tmp_path, meanwhile):
    """The second has one sample more; the first comes in after the second was let through."""
    table = load("breast_cancer")

    def federation(last):
        held = {"p1": range(100), "p2": range(100, last), "p3": range(400, 500)}
        tiles = {
            name: (
                Tile.make(
                    table.ids[list(rows)],
                    table.features,
                    table.block[list(rows)],
                    table.labels[list(rows)],
                ),
            )
            for name, rows in held.items()
        }
        return Federation(tiles, Preprocessing(), terms=Terms(), ledger=Ledger(tmp_path / "ledger"))

    settings = Settings(lam=1e-1, gap=0.5, solver="cutting-planes")
    done = []
    meanwhile("start", lambda: done.append(federation(200).train(settings)))
    with pytest.raises(WeftError, match=r"party p2 refuses to train, because so few .*1 came"):
        federation(201).train(settings)
    assert done
    pages = Book(tmp_path / "ledger", "p2").read()
    assert [size for _, size in pages.attended.sizes] == [100]


def test_a_ledger_that_is_put_back_in_the_middle_of_a_run_is_found_out(breast, tmp_path):
    """An older copy, with the same key, does not hold what the run would take back."""
    ledger = Ledger(tmp_path / "ledger")
    settings = Settings(lam=1e-2, gap=1e-2, solver="cutting-planes")
    Federation(breast, Preprocessing(scaling="standard"), ledger=ledger).train(settings)
    path = Book(ledger.folder, "p1").path
    older = path.read_bytes()

    def put_back(record):
        if record.iteration == 2:
            path.write_bytes(older)

    with pytest.raises(StorageError, match="another ledger was put in the place of"):
        Federation(breast, Preprocessing(scaling="standard"), ledger=ledger).train(
            settings, progress=put_back
        )
    assert path.read_bytes() == older
