"""``weft train --record`` and ``weft audit``: everything that crossed, and who could read it."""

import json
import shutil
import stat
import struct
from typing import Annotated
from zlib import crc32

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len

from weft.cli.terminal_output import ProgressLine
from weft.protocol import LocalChannel, Message, Phase, Recorded
from weft.protocol.field_visibility import record
from weft.protocol.recording_file import Head, Recorder, Recording, RecordingError

pytestmark = pytest.mark.usefixtures("no_pictures")

WIDE = 500


@pytest.fixture
def wide(monkeypatch):
    """A terminal in which no cell of a table breaks."""
    monkeypatch.setenv("COLUMNS", str(WIDE))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the first of these tests leaves the results of its run for the others."""
    return tmp_path_factory.mktemp("recorded") / "results"


@pytest.fixture
def run(weft, hospitals, tmp_path, kept):
    """The results folder of a short recorded run, made once."""
    hospitals.change("gap = 1e-2", "gap = 5e-1")
    config, folder = hospitals.write(), tmp_path / "results"
    if kept.exists():
        return shutil.copytree(kept, folder)
    outcome = weft("train", config, "--record", "--out", "results")
    assert outcome.code == 0, outcome.err
    assert "weft audit results" in outcome.out
    shutil.copytree(folder, kept)
    return folder


def sentence(outcome):
    """What a refusal says: one line on stderr, nothing on stdout."""
    assert outcome.code == 2
    assert not outcome.out
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    return outcome.err


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_signatures_are_checked_by_the_keys_of_a_folder_or_roster(weft, hospitals, tmp_path):
    hospitals.change("gap = 1e-2", "gap = 5e-1")
    assert weft("keys", "new", "keys", "--party", "north", "--party", "south").code == 0
    config = hospitals.write()
    assert weft("train", config, "--record", "--keys", "keys", "--out", "signed").code == 0
    told = weft("audit", "signed")
    assert told.code == 0
    assert "- north, south: signed the hash of these very messages; --roster or" in told.out
    assert "no signature is wrong" not in told.out
    told = weft("audit", "signed", "--keys", "keys")
    assert told.code == 0
    assert "✓ no signature is wrong" in told.out
    assert "- north, south: signed the hash of these very messages, by keys that were" in told.out
    roster = ["federation", "draft", "roster.json", "--keys", "keys", "--allow-pairs"]
    assert weft(*roster).code == 0
    assert "did not sign it" in sentence(weft("audit", "signed", "--roster", "roster.json"))
    for name in ("north", "south"):
        sign = ["federation", "sign", "roster.json", "--keys", "keys", "--party", name, "--yes"]
        assert weft(*sign).code == 0
    found = json.loads(weft("audit", "signed", "--roster", "roster.json", "--json").out)
    assert found["signed"] == {"north": "verified", "south": "verified"}
    assert weft("keys", "new", "others", "--party", "north", "--party", "south").code == 0
    told = weft("audit", "signed", "--keys", "others")
    assert told.code == 1
    assert "signatures that are not of these parties" in told.out


# ── recording ─────────────────────────────────────────────────────────────────────────────────


def test_a_recording_is_for_its_owner_and_holds_every_message(run):
    path = run / "messages.weft"
    assert mode(path) == 0o600
    summary = json.loads((run / "summary.json").read_text())
    recording = Recording(path)
    assert recording.head == Head("two hospitals", ["north", "south"], "pad")
    entries = list(recording.entries())
    assert [entry.number for entry in entries] == list(range(len(entries)))
    assert {entry.direction for entry in entries} == {"down", "up"}
    # Both parties are asked in every round trip of this run, but one joins the classes; and once
    # more for the model.
    assert len(entries) == 4 * (summary["cost"]["round_trips"] + 1) - 2
    assert not list(run.parent.glob(".*"))


def test_nothing_is_recorded_unless_asked_for(weft, hospitals, tmp_path):
    hospitals.change("gap = 1e-2", "gap = 5e-1")
    assert weft("train", hospitals.write(), "--out", "results").code == 0
    assert not (tmp_path / "results" / "messages.weft").exists()
    assert "train again with --record" in sentence(weft("audit", "results"))


def test_a_config_asks_for_a_recording(weft, hospitals):
    hospitals.change("gap = 1e-2", "gap = 5e-1\nrecord = true")
    assert weft("train", hospitals.write(), "--out", "results").code == 0
    assert weft("audit", "results").code == 0
    hospitals.change("record = true", 'record = "yes"')
    assert "record" in sentence(weft("train", hospitals.write(), "--out", "more"))


@pytest.mark.parametrize("checkpoints", ["", "\ncheckpoint_every = 1000"])
def test_a_run_that_fails_leaves_no_recording(weft, hospitals, tmp_path, checkpoints):
    hospitals.change("gap = 1e-2", 'gap = 1e-2\nlocal = "theory"' + checkpoints)
    hospitals.change("unit_rows = true", "unit_rows = false")
    hospitals.change("[privacy]", "[privacy]\nallow_sample_norms = true")
    config = hospitals.write()
    before = sorted(tmp_path.rglob("*"))
    outcome = weft("train", config, "--record", "--out", "deep/down/results")
    assert "unit_rows" in sentence(outcome)
    left = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    # What was shown until then stays in the books.
    left = [path for path in left if "ledger" not in path.parts]
    assert not [path for path in left if path.is_file()]
    assert checkpoints or not left


def test_a_folder_that_cannot_be_made_is_one_sentence(weft, hospitals):
    config = hospitals.write()
    assert "cannot be made" in sentence(
        weft("train", config, "--record", "--out", "/dev/null/sub/results")
    )
    hospitals.change("gap = 1e-2", "gap = 1e-2\ncheckpoint_every = 5")
    assert "cannot be made" in sentence(
        weft("train", hospitals.write(), "--out", "/dev/null/sub/results")
    )


def interrupted(weft, monkeypatch, config, *options):
    def interrupt(self, record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressLine, "__call__", interrupt)
        assert weft("train", config, "--out", "cut", *options).code == 130


def test_the_recording_of_a_resumed_run_has_both_halves(weft, hospitals, tmp_path, monkeypatch):
    hospitals.change("gap = 1e-2", "gap = 1e-9\ncheckpoint_every = 2")
    hospitals.change("iterations = 500", "iterations = 8")
    config = hospitals.write()
    interrupted(weft, monkeypatch, config, "--record")
    growing = tmp_path / "cut.checkpoints" / "messages.weft"
    assert mode(growing) == 0o600
    assert "is cut off after" in sentence(weft("audit", growing))
    # A process that is killed may leave half a frame.
    with growing.open("ab") as file:
        file.write(b"\x99" * 7)
    outcome = weft("train", config, "--out", "cut", "--resume")
    assert outcome.code == 0, outcome.err
    entries = list(Recording(tmp_path / "cut" / "messages.weft").entries())
    phases = [entry.phase for entry in entries]
    assert phases.count("match.tokens") == 8
    assert phases.count("checkpoint.restore") == 4
    iterations = [e.message["iteration"] for e in entries if e.phase == "hyfdca.weights"
                  and e.direction == "down" and e.party == "north"]  # fmt: skip
    assert iterations[:5] == list(range(1, 6))
    assert iterations[5:9] == list(range(5, 9))
    found = weft("audit", "cut")
    assert found.code == 0, found.out


def test_half_a_recording_is_refused(weft, hospitals, monkeypatch):
    hospitals.change("gap = 1e-2", "gap = 1e-9\ncheckpoint_every = 2")
    hospitals.change("iterations = 500", "iterations = 8")
    config = hospitals.write()
    interrupted(weft, monkeypatch, config)
    said = sentence(weft("train", config, "--out", "cut", "--resume", "--record"))
    assert "was not recorded" in said
    assert weft("train", config, "--out", "cut", "--resume").code == 0


class Number(Message):
    n: Annotated[int, record("a number")]


HELLO = Phase("toy.hello of audits", Number, Number)


def test_what_parties_said_instead_of_answering_is_kept(tmp_path):
    def refuses(phase, message):
        raise RecordingError("it will not")

    def slow(phase, message):
        return Number(n=1)

    def broken(phase, message):
        return 1 / 0

    recorder = Recorder(tmp_path / "m", Head("x", ["a", "b", "c"], "pad"))
    handlers = {"a": refuses, "b": slow, "c": broken}
    channel = LocalChannel(handlers, timeout=0.0, record=recorder)
    channel.ask(HELLO, {name: Number(n=7) for name in ("a", "b", "c", "nobody")})
    recorder.finish()
    up = [e for e in Recording(tmp_path / "m").entries() if e.direction == "up"]
    assert [(e.party, e.message, e.failure) for e in up] == [
        ("a", {}, "refused: it will not"),
        ("b", {"n": 1}, "late: no reply within 0 s"),
        ("c", {}, "failed: ZeroDivisionError: division by zero"),
    ]


def test_a_disk_that_is_full_stops_the_run_with_a_sentence(weft, hospitals, tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    config = hospitals.write()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        outcome = weft("train", config, "--record", "--out", "results")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "the messages cannot be recorded (File too large)" in sentence(outcome)
    assert not [path for path in tmp_path.iterdir() if path.name != "hospitals"]


# ── the table ─────────────────────────────────────────────────────────────────────────────────


def test_the_coordinators_table_says_what_is_hidden(weft, run, wide):
    outcome = weft("audit", run)
    assert outcome.code == 0, outcome.out
    rows = {" ".join(line.split()) for line in outcome.out.splitlines()}
    for words in (
        "two hospitals: 2 parties, cipher pad",
        "rows 2 640 B tokens: keyed hashes of ids hidden",
        "labels 2 640 B tokens: keyed hashes of id with label hidden",
        "public 2 128 B public keys",
        "encrypted (pad): its part of row norms hidden",
        "masked scalars: its losses and conjugates hidden",
        "✓ no block was sent twice",
        "Sound: the coordinator could read what is public",
    ):
        assert any(words in row for row in rows), words
    for loud in ("READABLE", "UNKNOWN", "✗"):
        assert loud not in outcome.out


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_fit_the_terminal(weft, run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in ([run], [run, "--party", "south"]):
        outcome = weft("audit", *arguments)
        table = [line for line in outcome.out.splitlines() if line.startswith(" ")]
        assert table
        assert max(map(cell_len, table)) <= columns
        assert "…" not in outcome.out


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        ("cutting-planes", "z of a point, of its samples opens"),
        ("hyfdca", "inner products of its samples opens"),
    ],
)
def test_a_partys_table_says_what_it_opens(weft, hospitals, wide, solver, words):
    hospitals.change("gap = 1e-2", f'gap = 5e-1\nname = "{solver}"')
    assert weft("train", hospitals.write(), "--record", "--out", "results").code == 0
    outcome = weft("audit", "results", "--party", "south")
    assert outcome.code == 0
    rows = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "What party south got" in rows
    assert any(words in row for row in rows)
    assert any("class names" in row and row.endswith("told") for row in rows)
    assert "Samples that it shares with others: 40, features: 0; every slot was its own." in rows
    assert "What the coordinator got" not in outcome.out


def test_json_is_one_object(weft, run):
    outcome = weft("audit", run / "messages.weft", "--json", "--party", "north")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["sound"] is True
    assert found["cipher"] == "pad"
    assert all(check["passed"] for check in found["checks"].values())
    assert found["parties"]["north"]["own_slots_only"] is True
    assert found["parties"]["north"]["opened"]["inner products"] > 0
    assert {line["verdict"] for line in found["coordinator"]} == {"hidden", "public"}
    assert {line["verdict"] for line in found["party"]} == {"told", "opens"}
    assert sum(line["bytes"] for line in found["party"]) == found["parties"]["north"]["bytes"]


def test_plain_runs_are_readable(weft, hospitals, wide):
    hospitals.change("gap = 1e-2", 'gap = 5e-1\ncipher = "plain"')
    hospitals.change("[privacy]", '[privacy]\nciphers = ["plain"]')
    assert weft("train", hospitals.write(), "--record", "--out", "results").code == 0
    outcome = weft("audit", "results")
    assert outcome.code == 1
    assert not outcome.err
    for words in ("READABLE", "not encrypted (plain): its part of row norms", "hides nothing"):
        assert words in outcome.out
    assert weft("audit", "results", "--json").code == 1


def test_a_field_that_nobody_knows_is_loud(weft, hospitals, monkeypatch, wide):
    def telling(phase, party, message, reply, failure):
        said = {**reply, "secret labels": np.zeros(3)} if phase == "start" else reply
        return Recorded(phase, party, message, said, failure)

    monkeypatch.setattr("weft.protocol.channel.Recorded", telling)
    hospitals.change("gap = 1e-2", "gap = 5e-1")
    assert weft("train", hospitals.write(), "--record", "--out", "results").code == 0
    outcome = weft("audit", "results")
    assert outcome.code == 1
    rows = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "secret labels 2 48 B unknown field UNKNOWN" in rows
    assert any(row.startswith("✗ 2 unknown fields; first: message") for row in rows)
    assert any(row.startswith("✗ 2 arrays of floats that went up") for row in rows)
    assert any(row.startswith("UNSOUND") for row in rows)


def test_joint_prediction_is_recorded_too(weft, hospitals, run, tmp_path):
    config = hospitals.folder / "config.toml"
    outcome = weft(
        "predict", run / "model.npz", "--joint", config, "--record", "joint.weft", "--out", "p.csv"
    )
    assert outcome.code == 0, outcome.err
    assert mode(tmp_path / "joint.weft") == 0o600
    assert weft("audit", "joint.weft").code == 0
    again = weft("predict", run / "model.npz", "--joint", config, "--record", "joint.weft")
    assert "joint.weft exists already" in sentence(again)
    alone = weft("predict", run / "model.npz", config, "--record", "more.weft")
    assert "--joint" in sentence(alone)
    assert not (tmp_path / "more.weft").exists()


# ── bad input ─────────────────────────────────────────────────────────────────────────────────


def test_wrong_arguments_are_one_sentence(weft, run, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.weft").write_text("no recording")
    assert "holds no recording" in sentence(weft("audit", "empty"))
    assert "does not exist" in sentence(weft("audit", "nowhere"))
    assert "is no recording of messages" in sentence(weft("audit", "text.weft"))
    said = sentence(weft("audit", run, "--party", "nroth"))
    assert "no party 'nroth'" in said
    assert "north, south" in said


def test_a_recording_that_is_cut_anywhere_is_refused(weft, run):
    path = run / "messages.weft"
    whole = path.read_bytes()
    ends, at = [], 16
    while at < len(whole):
        (length,) = struct.unpack_from("<Q", whole, at)
        at += 12 + length
        ends.append(at)
    assert ends[-1] == len(whole)
    for size in (0, 5, 16, 20, ends[0], ends[0] + 3, ends[5], ends[5] + 12, ends[-2], at - 1):
        path.write_bytes(whole[:size])
        said = sentence(weft("audit", run))
        assert "cut off after" in said or "no recording" in said or "damaged" in said
        assert size < 16 or "messages.weft" in said
    path.write_bytes(whole[: ends[5]])
    assert "is cut off after 5 messages" in sentence(weft("audit", run))


def test_a_recording_with_changed_bytes_is_refused(weft, run):
    path = run / "messages.weft"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [3, 17, 25, 30, 60, len(whole) - 3, *rng.integers(16, len(whole), 12).tolist()]:
        broken = bytearray(whole)
        broken[at] ^= 0x55
        path.write_bytes(bytes(broken))
        said = sentence(weft("audit", run))
        assert "damaged" in said or "cut off" in said or "no recording" in said
    path.write_bytes(whole + b"\x00" * 40)
    sentence(weft("audit", run))


def frame(value):
    content = msgspec.msgpack.encode(value)
    return struct.pack("<QI", len(content), crc32(content)) + content


HEAD = {"type": "head", "name": "x", "parties": ["a"], "cipher": "pad", "sees": "nothing"}
MESSAGE = {"type": "message", "number": 0, "phase": "start", "party": "a", "direction": "up",
           "failure": "", "packed": b"WEFT1\x80"}  # fmt: skip
END = {"type": "end", "count": 1}


@pytest.mark.parametrize(
    ("frames", "sound"),
    [
        ([HEAD, MESSAGE, END], True),
        ([MESSAGE, HEAD, END], False),
        ([HEAD, {**MESSAGE, "number": 1}, END], False),
        ([HEAD, {**MESSAGE, "direction": "sideways"}, END], False),
        ([HEAD, {**MESSAGE, "packed": b"WEFT1\xc1"}, END], False),
        ([HEAD, {**MESSAGE, "packed": b"pickle"}, END], False),
        ([HEAD, MESSAGE, {**END, "count": 2}], False),
        ([HEAD, MESSAGE, END, MESSAGE], False),
        ([HEAD, HEAD, MESSAGE, END], False),
        ([{**HEAD, "parties": "a"}, MESSAGE, END], False),
        ([END], False),
        ([7], False),
    ],
)
def test_frames_out_of_order_or_of_another_kind_are_refused(weft, tmp_path, frames, sound):
    (tmp_path / "m.weft").write_bytes(b"weft messages 1\n" + b"".join(map(frame, frames)))
    outcome = weft("audit", "m.weft")
    if sound:
        assert outcome.code == 0, outcome.err
    else:
        assert "damaged" in sentence(outcome)


def test_the_command_teaches_with_an_example(weft):
    outcome = weft("audit", "--help")
    assert outcome.code == 0
    assert "Example: weft audit" in outcome.out
    for word in ("hidden", "READABLE", "--party", "--json"):
        assert word in outcome.out
    assert "--record" in weft("train", "--help").out
