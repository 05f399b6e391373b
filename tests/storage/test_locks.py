"""Locks of files that several runs write: who comes second waits, and not for ever."""

from __future__ import annotations

import re
import time
from threading import Event, Thread

import pytest

from weft.storage import atomic_files
from weft.storage.atomic_files import StorageError, locked


@pytest.fixture
def held(tmp_path):
    """A path whose lock another thread has, and what lets it go."""
    path, taken, let_go = tmp_path / "ledger", Event(), Event()

    def hold():
        with locked(path):
            taken.set()
            let_go.wait(10)

    holder = Thread(target=hold)
    holder.start()
    assert taken.wait(10)
    yield path, let_go
    let_go.set()
    holder.join()


def test_a_lock_that_another_has_is_waited_for(held):
    path, let_go = held
    order, begun = [], Event()

    def go_on():
        begun.set()
        with locked(path):
            order.append("second")

    second = Thread(target=go_on)
    second.start()
    begun.wait()
    # Time in which it would go on, if the lock did not hold it back.
    time.sleep(0.05)
    order.append("first")
    let_go.set()
    second.join(60)
    assert order == ["first", "second"]


def test_a_lock_that_another_keeps_is_given_up_in_a_sentence(held, monkeypatch):
    path, _ = held
    monkeypatch.setattr(atomic_files, "_PATIENCE", 0.02)
    with (
        pytest.raises(StorageError, match=re.escape("another run has had it for 0.02 s")),
        locked(path),
    ):
        pytest.fail("two have the lock")
