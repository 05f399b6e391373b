"""The coordinator's side of a neural run: Algorithm 1 over a channel.

It is the same in one process and over a network. The coordinator sees weights; losses, accuracies
and sums of columns it sees as totals over all parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from secrets import token_bytes
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder
from weft.errors import ConfigError, DataError, PartyAway, ProtocolError
from weft.federation.participation_terms_and_classes.coordinator import announce
from weft.guards.privacy_terms import Terms
from weft.matching.authenticated_class_list import AgreedClasses
from weft.protocol import Channel, Failure
from weft.protocol.shared_fields import Participants
from weft.solvers.participation import participation_of
from weft.sums.scalar_sums import add_scalars
from weft.thread_safe_decoding import prepared
from weft_neural.block_announcement import MOST_COLUMNS, MOST_FEATURES, Held
from weft_neural.history import NeuralOutcome, Round, mean_and_spread
from weft_neural.messages import (
    BUILD,
    FINISH,
    PLAN,
    TRAIN,
    BuildReply,
    BuildRequest,
    FinishRequest,
    PlanReply,
    PlanRequest,
    TrainReply,
    TrainRequest,
)
from weft_neural.scaling import agree_on_columns, scales_of
from weft_neural.server_aggregation import Assembly, Server, sent_by
from weft_neural.settings import NeuralSettings
from weft_neural.weighted_means_on_host_or_device import Vector, vector_of

#: Rounds in a row in which nobody answered, before a run gives up.
_MOST_SILENT = 20
#: Seconds between two tries to reach a party that is away.
_PAUSE = 1.0

Judge = Callable[[Server], float]


def coordinate_neural(
    channel: Channel,
    settings: NeuralSettings,
    *,
    run: bytes | None = None,
    classes: Sequence[Any] | None = None,
    progress: Callable[[Round], None] | None = None,
    judge: Judge | None = None,
) -> NeuralOutcome:
    """Run HyFEM from the announcements to the parties' last copies.

    Parameters
    ----------
    run
        Sixteen random bytes that name the run; None: fresh ones.
    classes
        The class values; None: the parties collect them.
    progress
        Is told of every round.
    judge
        Measures the server's model where somebody has samples with all blocks.
    """
    run = token_bytes(16) if run is None else run
    hides = settings.cipher != "plain"
    # Configs of networks have nothing to confirm with: classes count as they are written.
    announced = announce(
        channel, run, sorts=True, hides=hides, classes=classes, confirmed=("labels",)
    )
    assert announced.agreed is not None
    _check_company(settings, channel.parties, announced.terms)
    adder = Adder(settings.cipher)
    server = _assemble(channel, adder, settings, run, announced.agreed)
    rounds = _Rounds(channel, adder, settings, server, judge)
    for turn in range(1, settings.rounds + 1):
        found = rounds.take_turn(turn)
        if progress is not None:
            progress(found)
    if not any(found.present for found in rounds.history):
        raise PartyAway("no party took part in any round, so that there is no model; start again")
    notes = rounds.notes + _finish(channel, settings, server)
    if announced.recipients is not None:
        notes.append(
            f"by the roster the model goes to {', '.join(announced.recipients)} and to nobody "
            "else: hand it on to them only"
        )
    assembly = server.assembly
    return NeuralOutcome(
        server.model(),
        rounds.history,
        settings,
        channel.meter,
        assembly.holders,
        assembly.weights,
        notes,
    )


# ── beginning ─────────────────────────────────────────────────────────────────────────────


def _check_company(settings: NeuralSettings, parties: Sequence[str], terms: Terms) -> None:
    """Refuse at once rounds with so few parties that their sums would not be masked."""
    if settings.cipher == "plain" or len(parties) == 1:
        return
    rule = participation_of(settings.participation, parties, settings.seed)
    counts = [len(rule.present(turn)) for turn in range(1, settings.rounds + 1)]
    fewest = min((count for count in counts if count), default=len(parties))
    if not terms.allows_scalars(fewest):
        raise ConfigError(
            f"a round with {fewest} part{'y' if fewest == 1 else 'ies'} would show their losses, "
            f"which min_contributors = {terms.min_contributors} forbids; let more take part in "
            "every round, or agree on allow_pairs = true"
        )


def _assemble(
    channel: Channel, adder: Adder, settings: NeuralSettings, run: bytes, classes: AgreedClasses
) -> Server:
    """Let every party say what it has, agree on scaling, and make the first networks."""
    parties = channel.parties
    told = {
        party: PlanRequest(
            run=run,
            settings=settings.to_json(),
            parties=len(parties),
            number=number,
            classes=classes,
        )
        for number, party in enumerate(parties)
    }
    plans = channel.ask(PLAN, told).insist("starting")
    adder.meet(parties, 0, b"")
    participants = None
    if adder.linked:
        cards = [plans[party].keys.card(party) for party in parties]
        participants = Participants(keys=b"".join(cards), labelled=np.ones(len(parties), bool))
    held = {party: _read_held(party, plans[party]) for party in parties}
    samples = {party: _read_samples(party, plans[party]) for party in parties}
    common = _agree_on_blocks(held, settings)
    holders = {p: tuple(n for n in common if n in blocks) for p, blocks in held.items()}
    scaled = {
        name: prod(block.shape)
        for name, block in common.items()
        if settings.blocks[name].scaling == "standard" and not block.pixels
    }
    own = {party: [n for n in names if n in scaled] for party, names in holders.items()}
    scaling = agree_on_columns(channel, adder, scaled, own, participants)
    first = {name: next(p for p in parties if name in holders[p]) for name in common}
    asked = {}
    for party in parties:
        given = [name for name in holders[party] if first[name] == party]
        scales = scales_of(scaling, own[party]) if scaled else None
        asked[party] = BuildRequest(
            give=np.array(given, dtype=str),
            scales=scales,
            participants=None if scaled else participants,
        )
    built = channel.ask(BUILD, asked).insist("building networks")
    features, sizes = _agree_on_sizes(built, holders)
    shaped = {
        name: msgspec.structs.replace(settings.blocks[name], shape=block.shape)
        for name, block in common.items()
    }
    assembly = Assembly(
        shaped,
        holders,
        {name: features[name] for name in common},
        {name: sizes[name] for name in common},
        samples if settings.weigh == "samples" else dict.fromkeys(parties, 1),
        classes.values,
        scaling,
    )
    return Server(settings, assembly, _first_extractors(built, assembly, first))


def _read_samples(party: str, plan: PlanReply) -> int:
    if plan.samples < 1:
        raise ProtocolError(f"party {party} trains on {plan.samples} samples; leave it out")
    return plan.samples


def _read_held(party: str, plan: PlanReply) -> dict[str, Held]:
    try:
        held = msgspec.json.decode(plan.held, type=prepared(list[Held]))
    except msgspec.MsgspecError:
        raise ProtocolError(f"party {party} told its blocks in a way that cannot be read") from None
    for block in held:
        lengths = block.shape
        if not lengths or min(lengths) < 1 or prod(lengths) > MOST_COLUMNS:
            raise ProtocolError(f"party {party} told a shape of block {block.name} that cannot be")
    return {block.name: block for block in held}


def _agree_on_blocks(
    held: Mapping[str, Mapping[str, Held]], settings: NeuralSettings
) -> dict[str, Held]:
    """All blocks that somebody has, in the order of the settings; holders must mean the same."""
    found: dict[str, tuple[str, Held]] = {}
    for party, blocks in held.items():
        if not blocks:
            raise ProtocolError(f"party {party} has none of the blocks; leave it out")
        for name, block in blocks.items():
            if name not in settings.blocks:
                raise ProtocolError(f"party {party} speaks of a block '{name}' that is in no plan")
            first, known = found.setdefault(name, (party, block))
            if block != known:
                what = "shapes" if block.shape != known.shape else "columns"
                raise DataError(
                    f"parties {first} and {party} have different {what} in block {name}; let its "
                    "columns be the same at all who hold it"
                )
    for name in settings.blocks:
        if name not in found:
            raise ConfigError(f"no party has block {name}; take it out of [neural.blocks]")
    return {name: found[name][1] for name in settings.blocks}


def _agree_on_sizes(
    built: Mapping[str, BuildReply], holders: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Features and sizes of every block's extractor."""
    found: dict[str, tuple[str, tuple[int, int, int]]] = {}
    for party, names in holders.items():
        for name, own in zip(names, _read_sizes(party, built[party], len(names)), strict=True):
            first, known = found.setdefault(name, (party, own))
            if own != known:
                raise ProtocolError(
                    f"parties {first} and {party} made different extractors for block {name}; use "
                    "the same version of Weft everywhere"
                )
    features = {name: count for name, (_, (count, _, _)) in found.items()}
    return features, {name: (size, kept) for name, (_, (_, size, kept)) in found.items()}


def _read_sizes(party: str, reply: BuildReply, blocks: int) -> list[tuple[int, int, int]]:
    """Features, weights and statistics of every block of a party."""
    features, sizes = reply.features, reply.sizes
    fits = features.shape == (blocks,) and sizes.shape == (blocks, 2)
    if not (fits and (sizes >= 0).all() and _within(features, 1, MOST_FEATURES)):
        raise ProtocolError(f"party {party} told sizes of its extractors that cannot be")
    return [
        (count, size, kept)
        for count, (size, kept) in zip(features.tolist(), sizes.tolist(), strict=True)
    ]


def _within(numbers: NDArray[np.int64], least: int, most: int) -> bool:
    return bool(((numbers >= least) & (numbers <= most)).all())


def _first_extractors(
    built: Mapping[str, BuildReply], assembly: Assembly, first: Mapping[str, str]
) -> dict[str, Vector]:
    """First weights of every block, from the first of its holders."""
    found: dict[str, Vector] = {}
    for party, names in assembly.holders.items():
        given = [name for name in names if first[name] == party]
        if given:
            with sent_by(party):
                vector = vector_of(built[party].extractors, "extractors", assembly.total(given))
            found |= assembly.cut(given, vector)
    return {name: found[name] for name in assembly.blocks}


# ── rounds ────────────────────────────────────────────────────────────────────────────────


class _Rounds:
    """What the coordinator keeps from round to round."""

    def __init__(
        self,
        channel: Channel,
        adder: Adder,
        settings: NeuralSettings,
        server: Server,
        judge: Judge | None,
    ) -> None:
        self._channel, self._adder, self._settings = channel, adder, settings
        self._server, self._judge = server, judge
        self._participation = participation_of(
            settings.participation, channel.parties, settings.seed
        )
        self._silent = 0
        self._missed: dict[str, int] = {}
        self._why: dict[str, str] = {}
        self.history: list[Round] = []

    @property
    def notes(self) -> list[str]:
        return [
            f"{party} did not answer in {count} of {self._settings.rounds} rounds "
            f"(the last time it {self._why[party]})"
            for party, count in self._missed.items()
        ]

    def take_turn(self, turn: int) -> Round:
        """Local steps of those who take part, then the server's model."""
        evaluates = turn % self._settings.evaluate_every == 0 or turn == self._settings.rounds
        round_ = self._adder.advance()
        asked = {}
        for party in self._participation.present(turn):
            extractors, classifier = self._server.copy_for(party)
            asked[party] = TrainRequest(
                round=round_,
                turn=turn,
                extractors=extractors,
                classifier=classifier,
                evaluate=evaluates,
            )
        self._adder.attend(asked)
        began = self._channel.elapsed
        replies = self._channel.ask(TRAIN, asked)
        trained = self._channel.elapsed - began
        replies.stop_on_refusal()
        self._count_missing(replies.missing, bool(replies.answered), len(asked))
        spent = dict(self._server.seconds)
        if replies.answered:
            self._server.take(replies.answered, turn)
        found = self._round(turn, replies.answered, asked, evaluates, trained, spent)
        self.history.append(found)
        return found

    def _count_missing(self, missing: Mapping[str, Failure], answered: bool, asked: int) -> None:
        for party, failure in missing.items():
            self._missed[party] = self._missed.get(party, 0) + 1
            was = "was late" if failure.kind == "late" else "failed"
            self._why[party] = f"{was}: {failure.reason}"
        if answered or not asked:
            self._silent = 0
            return
        party, reason = next(iter(self._why.items()))
        self._silent += 1
        if self._silent == _MOST_SILENT:
            raise PartyAway(
                f"no party answered in {_MOST_SILENT} rounds in a row (party {party} {reason}); "
                "bring them back, and start again"
            )
        self._channel.pause(_PAUSE)

    def _round(
        self,
        turn: int,
        answered: Mapping[str, TrainReply],
        asked: Mapping[str, TrainRequest],
        evaluates: bool,
        trained: float,
        spent: Mapping[str, float],
    ) -> Round:
        server = self._server
        sums = add_scalars(answered, "sums", 7 if evaluates else 1, asked) if answered else None
        total = sum(server.assembly.counts[party] for party in answered)
        received: tuple[float | None, float | None] = None, None
        local = received
        if sums is not None and evaluates:
            received, local = mean_and_spread(sums[1:4]), mean_and_spread(sums[4:7])
        judged = None
        if self._judge is not None and evaluates and server.matched is not None:
            judged = self._judge(server)
        cost = self._channel.meter.read()
        return Round(
            turn=turn,
            present=len(answered),
            loss=None if sums is None else sums[0] / total,
            local_accuracy=local[0],
            local_spread=local[1],
            received_accuracy=received[0],
            received_spread=received[1],
            server_accuracy=judged,
            rows=server.rows,
            objective=0.0 if server.matched is None else sum(server.matched.objective),
            training_seconds=trained,
            averaging_seconds=server.seconds["averaging"] - spent["averaging"],
            matching_seconds=server.seconds["matching"] - spent["matching"],
            round_trips=cost.round_trips,
            bytes_down=cost.bytes_down,
            bytes_up=cost.bytes_up,
        )


def _finish(channel: Channel, settings: NeuralSettings, server: Server) -> list[str]:
    """Bring every party its copy of the last model; who stays away is noted."""
    waiting = list(channel.parties)
    began = channel.elapsed
    while True:
        copies = {party: server.copy_for(party) for party in waiting}
        last = {p: FinishRequest(extractors=e, classifier=c) for p, (e, c) in copies.items()}
        replies = channel.ask(FINISH, last)
        replies.stop_on_refusal()
        waiting = [party for party in waiting if party in replies.missing]
        if not waiting:
            return []
        if channel.elapsed - began >= settings.patience:
            return [
                f"{party} did not get its copy of the model ({replies.missing[party].reason}); "
                "send it the server's"
                for party in waiting
            ]
        channel.pause(_PAUSE)
