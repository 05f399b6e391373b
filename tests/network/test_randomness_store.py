"""A party's random values on disk: whole, durable, and for its owner alone."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import stat
from unittest.mock import patch

import pytest
from replayed import Troupe, cut_for, federation_for, replay, settings_for

from weft.crypto.randomness_kept_for_restart import Forgotten, RandomnessLog
from weft.network.journal_of_random_draws import RandomnessStore
from weft.storage.atomic_files import StorageError
from weft.storage.journal import Journal


def contents(path):
    """Names and values as another process finds them."""
    store = RandomnessStore(path)
    try:
        return {name: store.get(name) for name in store._places}
    finally:
        store.close()


def test_values_on_disk_bring_a_party_back(tmp_path):
    names = tuple(cut_for("hyfdca").parties)
    memories = {name: RandomnessStore(tmp_path / name) for name in names}
    troupe = Troupe(memories=memories)
    expected = troupe.train(federation_for("hyfdca"), settings_for("hyfdca"))
    memories[names[0]].close()
    twin, _ = replay(troupe, names[0], RandomnessStore(tmp_path / names[0]))
    ours, theirs = (
        party._half.weights(expected.result.model_iteration)
        for party in (twin, troupe.parties[names[0]])
    )
    assert ours.tobytes() == theirs.tobytes()


def test_values_are_for_their_owner_alone_and_the_latest_counts(tmp_path):
    path = tmp_path / "runs" / "randomness"
    store = RandomnessStore(path)
    names = ["nonce 1", "../up", ".", "ü/ö %2F", ""]
    for number, name in enumerate(names):
        store[name] = bytes([number]) * number
    store["nonce 1"] = b"other"
    assert store.get("nonce 2") is None
    assert "nonce 2" not in store
    assert len(store) == len(names)
    with pytest.raises(StorageError, match="in use by another process"):
        RandomnessStore(path)
    store.close()
    assert contents(path) == {
        **{n: bytes([k]) * k for k, n in enumerate(names)},
        "nonce 1": b"other",
    }
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_was_drawn_for_messages_can_be_forgotten_and_the_rest_stays(tmp_path):
    path = tmp_path / "randomness"
    store = RandomnessStore(path)
    draws = RandomnessLog(store)
    draws.random("before any message", 4)
    draws.hear("say", b"a")
    first = draws.random("nonce", 4)
    store["note"] = b"old"
    begin = store.count
    draws.random("nonce", 4)
    store["note"] = b"new"
    store["mark"] = b"stays"
    end = store.count
    last = draws.random("nonce", 4)
    before = path.stat().st_size
    # The second nonce; a note hangs on no message.
    assert store.forget(begin, end) == 1
    assert path.stat().st_size < before
    expected = {"note": b"new", "mark": b"stays"}
    assert {name: store.get(name) for name in expected} == expected
    store["later"] = b"after it"
    store.close()
    found = contents(path)
    assert {name: found[name] for name in expected} == expected
    assert found["later"] == b"after it"
    assert [value for name, value in found.items() if name.startswith("nonce")] == [first, last]
    assert sum(name.startswith("before") for name in found) == 1


def test_what_is_forgotten_is_never_made_anew_for_messages_that_are_heard_again(tmp_path):
    store = RandomnessStore(tmp_path / "randomness")
    draws = RandomnessLog(store)
    draws.hear("say", b"a")
    draws.random("nonce", 4)
    store.forget(0, store.count)
    again = RandomnessLog(store)
    again.hear("say", b"a")
    with again.replaying(), pytest.raises(Forgotten, match="lacks 'nonce'"):
        again.random("nonce", 4)
    store.close()


def test_a_full_disk_is_told_in_a_sentence_and_spoils_nothing(tmp_path, monkeypatch):
    path = tmp_path / "randomness"
    store = RandomnessStore(path)
    store["nonce 1"] = b"first"

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    draws = RandomnessLog(store)
    assert draws.random("nonce", 5) == b"first"
    for _ in range(2):
        with pytest.raises(StorageError, match=r"No space left on device.*; check .* free"):
            draws.random("nonce", 5)
    monkeypatch.undo()
    later = draws.random("nonce", 5)
    store.close()
    assert contents(path) == {"nonce 1": b"first", "nonce 2": later}


def test_what_a_kill_left_half_written_is_never_read(tmp_path):
    path = tmp_path / "randomness"
    child = os.fork()
    if not child:
        store = RandomnessStore(path)
        store["nonce 1"] = b"whole"
        write = os.pwrite

        def half(file, content, at):
            write(file, content[:-3], at)
            os.kill(os.getpid(), signal.SIGKILL)

        with patch("os.pwrite", half):
            store["nonce 2"] = b"secret"
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert b"sec" in path.read_bytes()
    assert contents(path) == {"nonce 1": b"whole"}
    assert b"sec" not in path.read_bytes()


def test_a_changed_value_is_never_used(tmp_path):
    path = tmp_path / "randomness"
    store = RandomnessStore(path)
    store["nonce 1"] = b"a secret"
    store["nonce 2"] = b"another"
    path.write_bytes(path.read_bytes().replace(b"a secret", b"a sEcret"))
    with pytest.raises(StorageError, match="damaged"):
        store.get("nonce 1")
    store.close()
    with pytest.raises(StorageError, match="damaged"):
        RandomnessStore(path)


def test_a_journal_of_another_kind_is_refused(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.append(b"an envelope")
    journal.close()
    with pytest.raises(StorageError, match="does not hold the random values"):
        RandomnessStore(tmp_path / "journal")


def test_draws_show_no_secret():
    draws = RandomnessLog()
    secret = draws.random("nonce", 16)
    assert repr(secret)[2:-1] not in repr(draws)
    with pytest.raises(TypeError, match="secrets"):
        pickle.dumps(draws)


def test_what_was_drawn_after_other_messages_is_not_drawn_again():
    memory = {}
    found = {}
    for story in ("ab", "ac", "b", "ab", "ac", "b"):
        draws = RandomnessLog(memory)
        for word in story:
            draws.hear("say", word.encode())
        drawn = draws.random("nonce", 16), draws.random("nonce", 16)
        assert found.setdefault(story, drawn) == drawn
    assert len({value for drawn in found.values() for value in drawn}) == 6
