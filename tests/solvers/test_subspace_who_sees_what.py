"""What crosses the channel in a run of the fast solvers, and what either side can read of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from itertools import product

import numpy as np
import pytest

from covering import before_release, cover, every_value, some_of
from weft.crypto.ciphers.block_format import KIND_CODES, read_block, words_of
from weft.data import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.privacy.audit.audit_of_a_recording import audit
from weft.privacy.audit.field_evidence import meaning_of
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.protocol.field_visibility import Form
from weft.protocol.recording_file import Head, entries_of

PREPARATION = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
BLOCKS = tuple(KIND_CODES)
RUNS = {
    "cutting planes": {"solver": "cutting-planes"},
    "groups": {"solver": "cutting-planes", "groups": 3, "iterations": 3},
    "lbfgs": {"solver": "lbfgs", "loss": "logistic"},
    "newton": {"solver": "newton-cg", "loss": "logistic", "iterations": 3},
    "path and folds": {
        "solver": "cutting-planes",
        "path": (0.5, 0.005),
        "folds": 3,
        "iterations": 3,
    },
    "smooth path and folds": {
        "solver": "lbfgs",
        "loss": "squared_hinge",
        "path": (0.5,),
        "folds": 3,
    },
}
every_run = pytest.mark.parametrize(
    "run", [*list(RUNS)[:-1], *before_release("smooth path and folds")]
)
some_runs = pytest.mark.parametrize(
    "run",
    some_of(RUNS, "groups", "newton"),
)
#: Other tests have all runs with labels at some parties.
every_case = cover(
    ("run", "unlabelled"),
    [(run, () if run in ("groups", "newton") else ("east",)) for run in list(RUNS)[:-1]],
    others=product(RUNS, [(), ("east",)]),
    ids=lambda value: value if isinstance(value, str) else "some" if value else "all",
)


def settings_of(quick, run, **changes):
    return quick(**{"iterations": 5, **RUNS[run], **changes})


def recorded(tiles, settings):
    federation = Federation(tiles, PREPARATION, record=True)
    trained = federation.train(settings)
    return federation, trained, trained.channel.transcript


@pytest.fixture(scope="module")
def crossed(patchwork, quick):
    """What `recorded` gives for the patchwork, each run made once."""

    @cache
    def found(run, unlabelled=(), cipher="pad"):
        return recorded(patchwork(unlabelled=unlabelled), settings_of(quick, run, cipher=cipher))

    return found


def subspace_messages(transcript):
    """(direction, entry, field, value) of all that crossed in the phases of the solver."""
    for entry in transcript:
        if entry.phase.startswith("subspace."):
            for direction, message in (("down", entry.message), ("up", entry.reply)):
                for field, value in message.items():
                    yield direction, entry, field, value


# ── the audit ─────────────────────────────────────────────────────────────────────────────


@every_case
def test_an_audit_knows_every_field_and_finds_nothing_readable(crossed, run, unlabelled):
    federation, _, transcript = crossed(run, unlabelled)
    found = audit(Head("a run", list(federation.parties), "pad"), entries_of(transcript))
    assert found.findings == {}
    verdicts = {line.verdict(coordinator=True) for line in found.coordinator}
    assert verdicts == {"hidden", "public"}
    phases = {entry.phase for entry in transcript if entry.phase.startswith("subspace.")}
    expected = {"spread", "search", "gather", "point", "close"} | (
        {"follow"} if unlabelled else set()
    )
    expected |= {"evaluate"} if "folds" in RUNS[run] else set()
    assert phases == {f"subspace.{name}" for name in expected}


@some_runs
def test_an_audit_says_so_where_weights_are_shown_by_agreement(table, quick, run):
    whole = table().to_tile()
    tiles = {
        name: (whole.rows(rows),)
        for name, rows in (("a", slice(0, 20)), ("b", slice(10, 30)), ("c", slice(25, 44)))
    }
    settings = settings_of(quick, run, coordinator_sees="weights", iterations=2)
    _, _, transcript = recorded(tiles, settings)
    head = Head("a run", list(tiles), "pad", "weights")
    found = audit(head, entries_of(transcript))
    assert found.findings == {}
    agreed = [line for line in found.coordinator if line.verdict(coordinator=True) == "agreed"]
    assert [(line.phase, line.fields) for line in agreed] == [("subspace.point", ["w"])]
    # Without the agreement, the same would be found out.
    assert audit(Head("a run", list(tiles), "pad"), entries_of(transcript)).findings


# ── the coordinator ───────────────────────────────────────────────────────────────────────


@every_case
def test_nothing_goes_up_as_a_number(crossed, run, unlabelled):
    """Neither z nor dual vectors, labels or weights: blocks, masked scalars and slots only."""
    _, _, transcript = crossed(run, unlabelled)
    seen = Counter()
    for direction, entry, field, value in subspace_messages(transcript):
        if direction == "down":
            continue
        seen[field] += 1
        if field == "alpha_slots":
            assert value.dtype == np.int32
            continue
        assert type(value) is bytes, (entry.phase, field)
        form = meaning_of("up", entry.phase, field).form
        assert form is (Form.BLOCK if field in BLOCKS else Form.SCALARS)
    assert {"v", "z", "gram", "losses", "offsets", "norms", "squares", "sizes"} <= seen.keys()


@every_case
def test_what_goes_down_in_the_clear_is_the_same_for_everybody(crossed, run, unlabelled):
    """Coefficients, which the coordinator made itself out of totals: about no one's samples."""
    _, trained, transcript = crossed(run, unlabelled)
    told = defaultdict(list)
    for direction, entry, field, value in subspace_messages(transcript):
        if direction == "down" and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert meaning_of("down", entry.phase, field).form is Form.COEFFICIENTS
            told[entry.phase, entry.message["round"], field].append(value)
            # A row per vector, a column per problem: not one per sample or feature.
            assert value.shape[-1] == 1 + trained.settings.folds, (entry.phase, field)
    assert told
    for where, values in told.items():
        assert all(np.array_equal(value, values[0]) for value in values[1:]), where


@some_runs
def test_a_coordinator_that_cannot_read_a_value_gets_the_same_messages_otherwise(crossed, run):
    _, plain, clear = crossed(run, ("east",), "plain")
    _, hidden, hiding = crossed(run, ("east",))
    assert plain.model.coef.tobytes() == hidden.model.coef.tobytes()
    compared = Counter()
    pairs = zip(subspace_only(clear), subspace_only(hiding), strict=True)
    for one, other in pairs:
        assert (one.phase, one.party) == (other.phase, other.party)
        for way, message, veiled in (
            ("down", one.message, other.message),
            ("up", one.reply, other.reply),
        ):
            for field, value in message.items():
                form = meaning_of(way, one.phase, field).form
                if form is Form.BLOCK:
                    words = words_of(read_block(value, field), field)
                    masked = words_of(read_block(veiled[field], field), field)
                    assert (words != masked).all(), (one.phase, field)
                    compared["words"] += words.size
                elif form is Form.SCALARS:
                    assert value != veiled[field], (one.phase, field)
                    compared["scalars"] += len(value) // SCALAR_BYTES
                elif isinstance(value, np.ndarray):
                    assert np.array_equal(value, veiled[field]), (one.phase, field)
                else:
                    assert value == veiled[field], (one.phase, field)
    assert compared["words"] > 500
    assert compared["scalars"] > 500


def subspace_only(transcript):
    return [entry for entry in transcript if entry.phase.startswith("subspace.")]


@every_case
def test_no_block_word_or_scalar_ever_comes_twice(crossed, run, unlabelled):
    _, _, transcript = crossed(run, unlabelled)
    blocks, words, scalars = [], [], []
    for direction, _, field, value in subspace_messages(transcript):
        if direction == "down" or not isinstance(value, bytes):
            continue
        if field in BLOCKS:
            blocks.append(value)
            words.append(words_of(read_block(value, field), field).ravel())
        else:
            at = range(0, len(value), SCALAR_BYTES)
            scalars += [value[k : k + SCALAR_BYTES] for k in at]
    assert len(set(blocks)) == len(blocks)
    every = np.concatenate(words)
    assert len(every) > 400
    assert len(np.unique(every)) == len(every)
    assert len(scalars) > 500
    assert len(set(scalars)) == len(scalars)
    # Noise, to whoever has no key.
    for data in (every.view(np.uint8), np.frombuffer(b"".join(scalars), np.uint8)):
        bits = np.unpackbits(data)
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


# ── the parties ───────────────────────────────────────────────────────────────────────────


@every_case
def test_no_party_sends_or_gets_a_slot_outside_its_own_rows_and_columns(crossed, run, unlabelled):
    federation, _, transcript = crossed(run, unlabelled)
    kinds = Counter()
    for entry in subspace_only(transcript):
        party_view = federation.parties[entry.party].view
        for message in (entry.message, entry.reply):
            for kind in BLOCKS:
                if kind not in message:
                    continue
                kinds[kind] += 1
                where = (entry.phase, entry.party, kind)
                shared = party_view.n_shared_columns if kind == "v" else party_view.n_shared_rows
                block = read_block(message[kind], str(where))
                slots = message.get(f"{kind}_slots")
                if slots is None:
                    assert block.slots <= shared, where
                else:
                    assert len(slots) == block.slots == len(np.unique(slots)), where
                    assert ((slots >= 0) & (slots < shared)).all(), where
    assert set(kinds) == {"z", "v"} | ({"alpha"} if unlabelled else set())


@every_value(
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
    run=RUNS,
    unlabelled=[("east",), ("north", "south")],
)
def test_inner_products_go_down_only_for_samples_whose_label_the_party_has(
    crossed, run, unlabelled
):
    federation, _, transcript = crossed(run, unlabelled)
    told = Counter()
    for entry in subspace_only(transcript):
        party_view = federation.parties[entry.party].view
        mine = party_view.labelled[party_view.row_cohort][: party_view.n_shared_rows]
        if "z" in entry.message:
            assert read_block(entry.message["z"], "z").slots == mine.sum(), entry.party
            told[entry.party] += 1
        if entry.party in unlabelled:
            # Not even asked for losses or dual vectors of its own.
            assert entry.phase in ("subspace.spread", "subspace.point", "subspace.follow")
    assert told
    assert not told.keys() & set(unlabelled)


@every_run
def test_dual_vectors_go_down_only_to_holders_without_the_labels(crossed, run):
    federation, _, transcript = crossed(run, ("east",))
    followed = 0
    for entry in subspace_only(transcript):
        if "alpha" not in entry.message:
            continue
        party_view = federation.parties[entry.party].view
        assert entry.phase == "subspace.follow"
        assert not party_view.labelled.all()
        followed += 1
    assert followed


@every_run
def test_no_total_of_scalars_is_that_of_a_single_party(crossed, run):
    """Masks cancel over those who are asked: with one of them, the total would be its own."""
    _, _, transcript = crossed(run, ("east",))
    asked = Counter(
        (entry.message["round"], field)
        for entry in subspace_only(transcript)
        for field, value in entry.reply.items()
        if isinstance(value, bytes) and field not in BLOCKS
    )
    assert asked
    assert min(asked.values()) > 1


def test_rows_only_data_needs_no_sums_over_samples(table, quick):
    whole = table()
    tiles = {
        name: (Tile.make(whole.ids[r], whole.features, whole.block[r], whole.labels[r]),)
        for name, r in (("a", slice(0, 15)), ("b", slice(15, 30)), ("c", slice(30, 44)))
    }
    for run in ("groups", "lbfgs", "newton", "path and folds"):
        _, _, transcript = recorded(tiles, settings_of(quick, run, iterations=2))
        for _, entry, field, _ in subspace_messages(transcript):
            assert field not in ("z", "alpha"), (run, entry.phase)


def test_no_message_carries_an_id_or_a_feature_name(crossed, patchwork):
    tiles = patchwork(unlabelled=("east",))
    names = {
        str(n).encode() for held in tiles.values() for t in held for n in (*t.ids, *t.features)
    }
    for run in ("cutting planes", "lbfgs", "newton"):
        _, _, transcript = crossed(run, ("east",))
        for _, entry, field, value in subspace_messages(transcript):
            raw = value.tobytes() if isinstance(value, np.ndarray) else value
            raw = raw if isinstance(raw, bytes) else str(raw).encode()
            assert not any(name in raw for name in names), (run, entry.phase, field)
