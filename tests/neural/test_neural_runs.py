"""Neural runs give the same bits again, and their messages show what was agreed and no more."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from small_networks import HELD, WIDTHS, Door, holdings, numbers, sources, tiny, trained

from weft.errors import ConfigError, ProtocolError, WeftError
from weft.guards.privacy_terms import Terms
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.audit.audit_of_a_recording import audit
from weft.privacy.audit.field_evidence import meaning_of
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.protocol.field_visibility import Form
from weft.protocol.message_bytes import pack
from weft.protocol.recording_file import Head, entries_of
from weft.sums.scalar_sums import add_scalars
from weft_neural.settings import NeuralSettings


def told(run):
    """Everything of a history but seconds and bytes."""
    skipped = ("seconds", "bytes", "round_trips")
    return [
        {name: value for name, value in vars(turn).items() if not name.endswith(skipped)
         and not name.startswith("bytes")}
        for turn in run.history
    ]  # fmt: skip


# ── the same bits ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def usual():
    return trained(record=True)


@pytest.mark.parametrize(
    "other",
    [
        lambda: trained(),
        lambda: trained(packed=True),
        lambda: trained(how=tiny(cipher="plain")),
        lambda: trained(door=Door),
    ],
    ids=["again", "as bytes", "plain", "through another channel"],
)
def test_runs_with_one_seed_are_the_same_to_the_bit(usual, other):
    found = other()
    assert numbers(found.model).tobytes() == numbers(usual.model).tobytes()
    for party in HELD:
        assert numbers(found.own[party]).tobytes() == numbers(usual.own[party]).tobytes()
        assert numbers(found.received[party]).tobytes() == numbers(usual.received[party]).tobytes()
    assert told(found) == told(usual)


def test_another_seed_gives_another_network(usual):
    assert not np.allclose(numbers(trained(how=tiny(seed=1)).model), numbers(usual.model))


def test_the_history_tells_what_a_judge_of_the_parties_finds(usual):
    """Mean and spread of accuracies, from models that the run gave."""
    accuracies = []
    for party, own in holdings().items():
        labels = usual.own[party].predict(own.test.blocks)
        accuracies.append(np.mean(labels == own.test.labels))
    assert usual.last.local_accuracy == pytest.approx(np.mean(accuracies), abs=1e-9)
    assert usual.last.local_spread == pytest.approx(np.std(accuracies), abs=1e-7)


# ── what travels ──────────────────────────────────────────────────────────────────────────────

RUNS = {
    "as usual": {},
    "own starts": {"start": "own"},
    "a fraction": {"participation": 0.67},
    "few measurings": {"evaluate_every": 3, "begin": "own"},
}


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_every_field_of_neural_runs_is_known_and_hidden_or_agreed(changes):
    run = trained(how=tiny(**changes), record=True)
    entries = list(entries_of(run.channel.transcript))
    found = audit(Head("a run", list(HELD), "pad", "weights"), entries)
    assert found.findings == {}
    shown = {
        field
        for line in found.coordinator
        if line.verdict(coordinator=True) == "agreed"
        for field in line.fields
    }
    assert shown == {"extractors", "classifier"}
    secret = audit(Head("a run", list(HELD), "pad"), entries)
    assert set(secret.findings) == {"floats"}


def test_an_audit_tells_that_plain_runs_hide_nothing():
    run = trained(how=tiny(cipher="plain"), record=True)
    entries = list(entries_of(run.channel.transcript))
    found = audit(Head("a run", list(HELD), "plain", "weights"), entries)
    assert set(found.findings) == {"masked"}


def crossed(run):
    """Every value that crossed, as bytes, but for weights and column means, which were agreed."""
    for entry in entries_of(run.channel.transcript):
        for field, value in entry.message.items():
            form = meaning_of(entry.direction, entry.phase, field).form
            if form not in (Form.WEIGHTS, Form.COEFFICIENTS):
                yield entry, field, pack({field: value})


def test_no_sample_no_label_and_no_count_of_labels_crosses(usual):
    held = holdings()
    sought = []
    for own in held.values():
        for block in own.blocks.values():
            for kind in (np.float64, np.float32):
                # Two neighbouring numbers of a sample, wherever they may lie.
                sought += [block.astype(kind)[row, :2].tobytes() for row in range(len(own))]
        for kind in (np.int64, np.int32, np.uint8):
            sought.append(own.labels.astype(kind)[:12].tobytes())
            sought.append(np.bincount(own.labels, minlength=3).astype(kind).tobytes())
    for entry, field, value in crossed(usual):
        assert not any(piece in value for piece in sought if len(piece) > 3), (entry.phase, field)
    for entry in entries_of(usual.channel.transcript):
        for field, value in entry.message.items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                packed = value.tobytes()
                assert not any(piece in packed for piece in sought if len(piece) > 3), field
    leak = pack({"sums": held["north"].blocks["ct"][3]})
    assert any(piece in leak for piece in sought)


def test_losses_and_accuracies_of_single_parties_are_masked(usual):
    trained_replies = {}
    for entry in usual.channel.transcript:
        if entry.phase == "neural.train" and entry.message["turn"] == 1:
            trained_replies[entry.party] = SimpleNamespace(**entry.reply)
    assert set(trained_replies) == set(HELD)
    whole = add_scalars(trained_replies, "sums", 7, trained_replies)
    samples = sum(len(own) for own in holdings().values())
    assert whole[0] / samples == pytest.approx(usual.history[0].loss)
    assert whole[1] == len(HELD)
    for party, reply in trained_replies.items():
        assert len(reply.sums) == 7 * SCALAR_BYTES
        alone = add_scalars({party: reply}, "sums", 7, {party})
        # An accuracy is at most 1, a loss small: what is read under a mask is neither.
        assert all(abs(value) > 1e3 for value in alone)


def test_a_party_gets_weights_of_its_own_blocks_only(usual):
    sizes = {name: 4 * (width + 1) for name, width in WIDTHS.items()}
    for entry in usual.channel.transcript:
        if entry.phase in ("neural.train", "neural.finish"):
            own = HELD[entry.party]
            assert entry.message["extractors"].shape == (sum(sizes[name] for name in own),)
            assert entry.message["classifier"].shape == (6 * (4 * len(own) + 1) + 3 * 7,)
    model = usual.model
    for entry in usual.channel.transcript:
        if entry.phase == "neural.finish":
            got = entry.message["extractors"].tobytes()
            for name in WIDTHS:
                assert (model.extractors[name].tobytes() in got) == (name in HELD[entry.party])


def test_a_party_is_told_the_scale_of_its_own_columns_only(usual):
    for entry in usual.channel.transcript:
        if entry.phase == "neural.build":
            width = sum(WIDTHS[name] for name in HELD[entry.party])
            assert (
                entry.message["scales.mean"].shape
                == entry.message["scales.deviation"].shape
                == (width,)
            )


# ── refusals ──────────────────────────────────────────────────────────────────────────────────


def one_sentence(error):
    words = str(error.value)
    assert "\n" not in words
    assert words[0] != " "
    assert ". " not in words
    return words


def test_weights_must_be_agreed_to():
    with pytest.raises(ConfigError) as error:
        NeuralSettings(blocks=tiny().blocks)
    assert "coordinator_sees = 'weights'" in one_sentence(error)


@pytest.mark.parametrize(
    "terms",
    [Terms(coordinator_sees="weights"), Terms(allow_networks=True)],
    ids=["no networks", "no weights"],
)
def test_a_party_that_does_not_allow_networks_stops_the_run(terms):
    consents = {name: Consent.open(name) for name in HELD} | {"east": Consent("east", terms)}
    with pytest.raises(WeftError) as error:
        trained(consents=consents)
    words = one_sentence(error)
    assert "east" in words
    assert "allow_networks = true" in words


def test_a_loss_that_is_no_number_is_told_in_a_sentence():
    with pytest.raises(ProtocolError) as error:
        trained(how=tiny(rate=1e6, method="avg", rounds=30))
    words = one_sentence(error)
    assert "lower rate" in words
    assert any(f"party {party}" in words for party in HELD)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rate": 30.0}, "rate × mu"),
        ({"rate": float("nan")}, "rate"),
        ({"hidden": ()}, "hidden"),
        ({"hidden": (0,)}, "hidden"),
        ({"steps": 0}, "steps"),
        ({"test_share": 1.0}, "test_share"),
        ({"mu1": -1.0}, "mu1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, word):
    with pytest.raises(ConfigError) as error:
        tiny(**change)
    assert word in one_sentence(error)


def test_a_block_that_nobody_has_is_refused():
    with pytest.raises(ConfigError) as error:
        trained(sources(), tiny([*WIDTHS, "xray"]))
    assert "xray" in one_sentence(error)
