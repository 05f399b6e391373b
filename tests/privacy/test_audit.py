"""The audit knows every field that can travel, and finds what should not have travelled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from covering import cover, every_value, some_of
from small_federations import rough_curvature
from weft.crypto.ciphers.block_format import Carried, pack_block, read_block, tag_bytes
from weft.crypto.ciphers.paillier_scheme import PaillierSecret
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.local_joint_prediction import predict_scores
from weft.privacy.audit.audit_of_a_recording import CHECKS, audit
from weft.privacy.audit.field_evidence import meaning_of
from weft.protocol import LocalChannel
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.protocol.field_visibility import Form
from weft.protocol.recording_file import Head, entries_of
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Checkpointing

LOCALS = ("safe", "practical", "theory")
RULES = {"everyone": "everyone", "half": 0.5, "cyclic": {"cyclic": 2}}
SCALED = Preprocessing(intercept=True, scaling="standard", unit_rows=True)


@pytest.fixture(scope="module")
def patchwork(patchwork):
    return partial(patchwork, unlabelled=("east",))


def settings(**changes):
    return Settings(**{"lam": 0.05, "iic": 0.4, "gap": None, "iterations": 8, **changes})


def looked_at(tiles, transcript, cipher="pad", party=None):
    return audit(Head("a run", list(tiles), cipher), entries_of(transcript), party)


#: Phases whose scalars are summed over those with labels.
LABELLED = "seeds.participants.labelled"
FOR_LABELS = ("hyfdca.step", *(f"subspace.{name}" for name in ("search", "gather", "close")))


def asked_alone(transcript):
    """Scalars of a party that was the only one asked: a total over one, which nothing can hide."""
    (flags, *_) = [e.message[LABELLED] for e in transcript if LABELLED in e.message]
    return sum(
        isinstance(value, bytes) and meaning_of("up", entry.phase, field).form is Form.SCALARS
        for entry in transcript
        if len(flags) == 1 or (flags.sum() == 1 and entry.phase in FOR_LABELS)
        for field, value in entry.reply.items()
    )


def assert_sound(found, transcript):
    alone = asked_alone(transcript)
    masked = found.findings.pop("masked", None)
    assert (0 if masked is None else masked.count) == alone
    assert found.findings == {}


@pytest.fixture(autouse=True)
def _curvature():
    with rough_curvature():
        yield


def trained(tiles, preprocessing=SCALED, **changes):
    """A run, and the audit of its transcript."""
    run = Federation(tiles, preprocessing, record=True).train(settings(**changes))
    return run, looked_at(tiles, run.channel.transcript, changes.get("cipher", "pad"))


# ── the table of fields ───────────────────────────────────────────────────────────────────────


@every_value(local=LOCALS, rule=RULES, scaling=["none", "standard", "minmax", "maxabs"])
def test_every_field_of_every_method_is_known_and_hidden(patchwork, local, rule, scaling):
    # Rows of norm one are found in twenty round trips, and needed in theory only.
    how = Preprocessing(intercept=True, scaling=scaling, unit_rows=local == "theory")
    run, found = trained(patchwork(), how, local=local, participation=RULES[rule])
    assert_sound(found, run.channel.transcript)
    verdicts = {
        line.verdict(coordinator=True)
        for line in found.coordinator
        if line.meaning.form is not Form.SCALARS
    }
    assert verdicts == {"hidden", "public"}


@pytest.fixture
def short_keys(monkeypatch):
    """Paillier keys that are only good for tests."""
    make = PaillierSecret.new.__func__
    monkeypatch.setattr(PaillierSecret, "new", classmethod(lambda cls: make(cls, 512)))


@cover(
    ("local", "cipher"),
    [("practical", "bfv"), ("theory", "paillier")],
    others=product(LOCALS, ["bfv", "paillier"]),
)
def test_every_field_of_other_ciphers_is_known_and_hidden(patchwork, short_keys, local, cipher):
    how = Preprocessing(unit_rows=True)
    run, found = trained(patchwork(), how, local=local, cipher=cipher, iterations=2)
    assert found.findings == {}
    blocks = [line for line in found.coordinator if line.meaning.form is Form.BLOCK]
    assert {line.form for line in blocks} == {f"encrypted ({cipher})"}
    scores = []
    predict_scores(run.model, patchwork(), record=scores.append, cipher=cipher)
    assert looked_at(patchwork(), scores, cipher).sound


@every_value(classes=[0, 2, 3], overlap=["mean", "first", "sum"])
def test_every_field_of_other_problems_is_known(patchwork, classes, overlap):
    how = Preprocessing(overlap=overlap)
    loss = "hinge" if classes else "squared"
    _, found = trained(patchwork(classes), how, loss=loss, iterations=3)
    assert found.findings == {}


@every_value(local=LOCALS, rule=["everyone", "cyclic"], cut=["rows", "columns"])
def test_every_field_of_tables_cut_one_way_is_known(patchwork, local, rule, cut):
    all_rows, all_columns = slice(0, 44), slice(0, 7)
    holdings = {
        "a": (slice(0, 20), all_columns) if cut == "rows" else (all_rows, slice(0, 3)),
        "b": (slice(20, 32), all_columns) if cut == "rows" else (all_rows, slice(3, 5)),
        "c": (slice(32, 44), all_columns) if cut == "rows" else (all_rows, slice(5, 7)),
        "d": (slice(20, 32), all_columns) if cut == "rows" else (all_rows, slice(5, 7)),
    }
    tiles = patchwork(unlabelled=(), holdings=holdings)
    run, found = trained(tiles, local=local, participation=RULES[rule], iterations=5)
    assert_sound(found, run.channel.transcript)


def test_every_field_of_matching_through_key_holders_is_known_and_hidden(patchwork):
    run, found = trained(patchwork(), Preprocessing(matching="oprf"), iterations=2)
    assert found.findings == {}
    phases = {line.phase for line in (*found.coordinator, *found.party)}
    assert {"match.hello", "match.ask", "match.evaluate", "match.tokens"} <= phases
    recorded = []
    predict_scores(run.model, patchwork(), record=recorded.append, matching="oprf")
    assert looked_at(patchwork(), recorded).findings == {}


def test_every_field_of_joint_prediction_is_known_and_hidden(patchwork):
    run, _ = trained(patchwork())
    recorded = []
    predict_scores(run.model, patchwork(), record=recorded.append)
    found = looked_at(patchwork(), recorded)
    assert found.findings == {}
    assert {line.phase for line in found.coordinator} == {
        "announce",
        "match.tokens",
        "match.view",
        "joint.size",
        "joint.partial",
    }
    assert all(view.opened["z"] for view in found.parties.values())


def test_every_field_of_saving_and_resuming_is_known(patchwork, tmp_path):
    tiles = patchwork()
    federation = Federation(tiles, SCALED, record=True, store=tmp_path)
    federation.train(settings(), checkpointing=Checkpointing(tmp_path, 4, False))
    again = federation.train(settings(iterations=8), checkpointing=Checkpointing(tmp_path, 4, True))
    phases = {entry.phase for entry in again.channel.transcript}
    assert "checkpoint.restore" in phases
    assert looked_at(tiles, again.channel.transcript).findings == {}


def silent_now_and_then(monkeypatch, phases):
    """Let parties break down in some of their answers to these phases."""
    call = LocalChannel._call
    count = {"calls": 0, "broken": 0}

    def broken(self, phase, party, message):
        if phase.name in phases:
            count["calls"] += 1
            if count["calls"] % 7 == 3:
                count["broken"] += 1
                handler = self._handlers[party]
                self._handlers[party] = lambda phase, message: 1 / 0
                try:
                    return call(self, phase, party, message)
                finally:
                    self._handlers[party] = handler
        return call(self, phase, party, message)

    monkeypatch.setattr(LocalChannel, "_call", broken)
    return count


@pytest.mark.parametrize("local", some_of(LOCALS, "practical"))
def test_parties_that_fall_silent_bring_no_unknown_field(patchwork, monkeypatch, local):
    phases = ("hyfdca.weights", "hyfdca.step", "hyfdca.dual")
    count = silent_now_and_then(monkeypatch, phases)
    run, found = trained(patchwork(), local=local, iterations=15, participation=0.75)
    assert count["broken"] > 3
    assert_sound(found, run.channel.transcript)
    assert found.said == {"failed: ZeroDivisionError: division by zero": count["broken"]}


def test_a_field_is_known_in_its_own_direction_and_phase_only():
    assert meaning_of("up", "hyfdca.step", "v").form is Form.BLOCK
    assert meaning_of("up", "hyfdca.step", "settings") is None
    assert meaning_of("up", "hyfdca.norms", "alpha") is None
    cohorts = meaning_of("down", "match.view", "view.tile_row_cohorts.places")
    assert cohorts.what == "its slots, cohorts and roles"
    assert meaning_of("up", "no such phase", "round") is None


# ── what an audit finds ───────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def recorded(patchwork):
    """A run whose messages the tests below change."""
    tiles = patchwork()
    run = Federation(tiles, SCALED, record=True).train(settings(iterations=4))
    return tiles, run.channel.transcript


def changed(recorded, phase, change, *, way="reply", nth=0):
    """The audit of a transcript in which one message was changed."""
    tiles, transcript = recorded
    transcript = list(transcript)
    at = [i for i, entry in enumerate(transcript) if entry.phase == phase][nth]
    entry = transcript[at]
    message = change(dict(getattr(entry, way)))
    transcript[at] = replace(entry, **{way: message})
    return looked_at(tiles, transcript)


def with_field(name, value):
    return lambda message: {**message, name: value}


def as_plain_words(message):
    """Numbers in fixed point under a header that says 'pad'."""
    block = read_block(message["z"], "z")
    body = np.arange(-3, block.slots * block.width - 3, dtype=np.int64).tobytes()
    head = ("pad", "z", block.key, block.pad_id, block.slots, block.width)
    return {**message, "z": pack_block(*head, body + bytes(tag_bytes("pad", block.slots)))}


def under_another_cipher(message):
    block = read_block(message["v"], "v")
    head = (block.kind, block.key, block.pad_id, block.slots, block.width)
    return {**message, "v": pack_block("plain", *head, bytes(block.body))}


def without_masks(message):
    half = (1 << 79).to_bytes(SCALAR_BYTES, "big")
    minus_half = ((1 << (8 * SCALAR_BYTES)) - (1 << 79)).to_bytes(SCALAR_BYTES, "big")
    return {**message, "losses": half + minus_half}


def with_a_total_without_a_pad(message):
    block = read_block(message["z"], "z")
    head = ("pad", "z", block.key, block.pad_id, block.slots, block.width)
    none = Carried(np.array([block.slots], np.uint32), None, np.zeros(1, np.uint64))
    return {**message, "z": pack_block(*head, bytes(block.body), none)}


def shifted_slots(message):
    return {**message, "z_slots": message["z_slots"] + 1000}


def repeated_slots(message):
    return {**message, "z_slots": np.zeros_like(message["z_slots"])}


@pytest.mark.parametrize(
    ("phase", "way", "change", "check"),
    [
        ("hyfdca.step", "reply", with_field("extra", 1), "fields"),
        ("hyfdca.step", "message", with_field("extra", 1), "fields"),
        ("hyfdca.step", "reply", with_field("settings", "{}"), "fields"),
        ("hyfdca.again?", "reply", with_field("sequence", 1), "fields"),
        ("hyfdca.step", "reply", with_field("v", np.zeros(4)), "floats"),
        ("hyfdca.step", "reply", with_field("sequence", np.zeros(4)), "floats"),
        ("hyfdca.step", "reply", with_field("sequence", 0.5), "forms"),
        ("match.tokens", "reply", with_field("rows", np.arange(9)), "forms"),
        ("match.tokens", "reply", with_field("labels", np.array(["ill"])), "forms"),
        ("hyfdca.step", "reply", with_field("losses", b"123"), "forms"),
        ("hyfdca.step", "reply", with_field("v", b"no block"), "blocks"),
        ("hyfdca.step", "reply", lambda m: {**m, "v": m["v"][:-5]}, "blocks"),
        ("hyfdca.step", "reply", under_another_cipher, "blocks"),
        ("hyfdca.step", "reply", under_another_cipher, "hidden"),
        ("hyfdca.weights", "reply", as_plain_words, "hidden"),
        ("hyfdca.step", "message", with_a_total_without_a_pad, "hidden"),
        ("hyfdca.step", "reply", without_masks, "masked"),
        ("hyfdca.weights", "reply", shifted_slots, "slots"),
        ("hyfdca.weights", "reply", repeated_slots, "slots"),
    ],
)
def test_what_should_not_travel_is_found(recorded, phase, way, change, check):
    tiles, transcript = recorded
    if phase.endswith("?"):
        # A phase in which nobody knows the field.
        first = replace(transcript[0], phase="hyfdca.again", message={}, reply=change({}))
        found = looked_at(tiles, [first])
    else:
        nth = 4 if "slots" in check else 0
        found = changed(recorded, phase, change, way=way, nth=nth)
    assert check in CHECKS
    assert found.findings[check].count >= 1
    assert not found.sound
    assert phase.rstrip("?") in found.findings[check].example


def test_scalars_without_masks_are_found_readable(recorded):
    found = changed(recorded, "hyfdca.step", with_field("losses", bytes(36)), way="reply")
    assert found.findings["masked"].count == 1
    (line,) = [
        line
        for line in found.coordinator
        if (line.phase, line.fields) == ("hyfdca.step", ["losses"])
    ]
    assert line.verdict(coordinator=True) == "READABLE"


def test_a_block_that_comes_again_is_found(recorded):
    tiles, transcript = recorded
    (first, second, *_) = [
        entry for entry in transcript if entry.phase == "hyfdca.step" and entry.party == "north"
    ]
    again = replace(second, reply={**second.reply, "v": first.reply["v"]})
    found = looked_at(tiles, [again if entry is second else entry for entry in transcript])
    assert found.findings["once"].count == 1
    assert "'v' from north in hyfdca.step" in found.findings["once"].example


def test_a_block_of_somebody_else_is_found(recorded):
    tiles, transcript = recorded
    first, second, *_ = [entry for entry in transcript if entry.phase == "hyfdca.norms"]
    stolen = replace(second, reply=first.reply)
    found = looked_at(tiles, [stolen if entry is second else entry for entry in transcript])
    assert "labels" in found.findings
    assert f"from {second.party}" in found.findings["labels"].example


def test_a_seat_with_slots_of_others_is_found(recorded):
    tiles, transcript = recorded
    seats = [entry for entry in transcript if entry.phase == "match.view"]
    for field in ("view.tile_row_cohorts.places", "view.tile_column_cohorts.places"):
        wrong = seats[1].message[field].copy()
        # One of its tokens is said to be of another cohort than it is.
        wrong[0] = next(c for c in wrong.tolist() if c != wrong[0])
        message = {**seats[1].message, field: wrong}
        other = replace(seats[1], message=message)
        found = looked_at(tiles, [other if entry is seats[1] else entry for entry in transcript])
        assert not found.parties[seats[1].party].own_slots
        assert found.findings["slots"].count == 1, field


def test_a_party_is_shown_what_it_got_and_opened(recorded):
    tiles, transcript = recorded
    found = looked_at(tiles, transcript, party="east")
    received = [entry for entry in transcript if entry.party == "east"]
    view = found.parties["east"]
    assert view.messages == len(received)
    blocks = [read_block(e.message["v"], "v") for e in received if "v" in e.message]
    assert {block.width for block in blocks} == {1, 2, 15}
    assert view.opened["v"] == sum(block.slots * block.width for block in blocks)
    # East has no labels, so that it is asked for no step and gets no inner products in training.
    training = {line.phase for line in found.party}
    assert "hyfdca.dual" in training
    assert "hyfdca.step" not in training
    verdicts = {line.verdict(coordinator=False) for line in found.party}
    assert verdicts == {"told", "opens"}


def test_plain_runs_are_readable_and_nothing_else_is_wrong(patchwork):
    _, found = trained(patchwork(), cipher="plain")
    assert set(found.findings) == {"hidden", "masked"}
    readable = {
        line.meaning.form
        for line in found.coordinator
        if line.verdict(coordinator=True) == "READABLE"
    }
    assert readable == {Form.BLOCK, Form.SCALARS}


def shared_by_all(patchwork):
    """Four parties that hold the same features."""
    rows = [slice(0, 20), slice(10, 30), slice(20, 40), slice(30, 44)]
    holdings = dict(zip("abcd", ((r, slice(0, 7)) for r in rows), strict=True))
    return patchwork(unlabelled=(), holdings=holdings)


def test_weights_may_be_shown_where_that_was_agreed(patchwork):
    tiles = shared_by_all(patchwork)
    how = Preprocessing(unit_rows=True)
    run = Federation(tiles, how, record=True).train(settings(coordinator_sees="weights"))
    entries = list(entries_of(run.channel.transcript))
    agreed = audit(Head("a run", list(tiles), "pad", "weights"), entries)
    assert agreed.findings == {}
    (line,) = [line for line in agreed.coordinator if line.fields == ["w"]]
    assert line.verdict(coordinator=True) == "agreed"
    secret = audit(Head("a run", list(tiles), "pad"), entries)
    assert set(secret.findings) == {"floats"}
    (line,) = [line for line in secret.coordinator if line.fields == ["w"]]
    assert line.verdict(coordinator=True) == "READABLE"


def test_the_papers_protocol_shows_feature_sums_and_nothing_else(patchwork):
    tiles = shared_by_all(patchwork)
    run = Federation(tiles, record=True).train(settings(coordinator_sees="papers"))
    entries = list(entries_of(run.channel.transcript))
    found = audit(Head("a run", list(tiles), "pad", "papers"), entries)
    assert set(found.findings) == {"hidden"}
    readable = {
        field
        for line in found.coordinator
        if line.verdict(coordinator=True) == "READABLE"
        for field in line.fields
    }
    assert readable == {"v"}
    assert "blocks" in audit(Head("a run", list(tiles), "pad"), entries).findings


def test_one_party_alone_hides_its_scalars_from_nobody(patchwork):
    tiles = patchwork(unlabelled=(), holdings={"solo": (slice(0, 44), slice(0, 7))})
    _, found = trained(tiles)
    assert set(found.findings) == {"masked"}
