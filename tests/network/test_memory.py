"""A party's memory in files: whole, durable, and for its owner alone."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import stat
from unittest.mock import patch

import pytest
from replayed import Troupe, cut_for, federation_for, replay, settings_for

from weft.crypto.randomness_log import RandomnessLog
from weft.network.randomness_store import FileMemory
from weft.storage.files import StorageError


def test_a_memory_in_files_brings_a_party_back(tmp_path):
    names = tuple(cut_for("hyfdca").parties)
    memories = {name: FileMemory(tmp_path / name) for name in names}
    troupe = Troupe(memories=memories)
    expected = troupe.train(federation_for("hyfdca"), settings_for("hyfdca"))
    twin, _ = replay(troupe, names[0], FileMemory(tmp_path / names[0]))
    ours, theirs = (
        party._half.weights(expected.result.model_iteration)
        for party in (twin, troupe.parties[names[0]])
    )
    assert ours.tobytes() == theirs.tobytes()


def test_a_memory_in_files_is_for_its_owner_alone_and_whole(tmp_path):
    memory = FileMemory(tmp_path / "runs" / "memory")
    names = ["nonce 1", "../up", ".", "ü/ö %2F", ".hidden.memory", ""]
    for number, name in enumerate(names):
        memory[name] = bytes([number]) * number
    memory["nonce 1"] = b"other"
    again = FileMemory(tmp_path / "runs" / "memory")
    assert dict(again) == {**{n: bytes([k]) * k for k, n in enumerate(names)}, "nonce 1": b"other"}
    folder = tmp_path / "runs" / "memory"
    assert list((tmp_path / "runs").iterdir()) == [folder]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    with pytest.raises(KeyError):
        again["nonce 2"]
    again.clear()
    assert not list(folder.iterdir())


def test_a_full_disk_is_told_in_a_sentence_and_spoils_nothing(tmp_path, monkeypatch):
    memory = FileMemory(tmp_path)
    memory["nonce 1"] = b"first"

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("weft.storage.files.os.fsync", full)
    draws = RandomnessLog(memory)
    assert draws.random("nonce", 5) == b"first"
    for _ in range(2):
        with pytest.raises(StorageError, match=r"No space left on device.*; check .* free"):
            draws.random("nonce", 5)
    monkeypatch.undo()
    assert dict(FileMemory(tmp_path)) == {"nonce 1": b"first"}
    later = draws.random("nonce", 5)
    assert dict(FileMemory(tmp_path)) == {"nonce 1": b"first", "nonce 2": later}


def test_what_a_kill_left_half_written_is_never_read(tmp_path):
    child = os.fork()
    if not child:
        # Killed where a draft is written and has not yet taken its place.
        with patch("os.replace", lambda *paths: os.kill(os.getpid(), signal.SIGKILL)):
            FileMemory(tmp_path)["nonce 1"] = b"secret"
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (draft,) = tmp_path.iterdir()
    assert draft.read_bytes() == b"secret"
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    assert not FileMemory(tmp_path)
    assert not list(tmp_path.iterdir())


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
