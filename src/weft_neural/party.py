"""A party of a neural run: trains its own network, and shows nobody a sample or a label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.crypto.party_key_agreement import Keys, Place
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.randomness_kept_for_restart import Memory, RandomnessLog
from weft.errors import DataError, ProtocolError
from weft.federation.participation_terms_and_classes.party import AnnouncingParty
from weft.matching.tokens import encode_labels
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import Answer, Message, Nothing, Phase, answer, answers, fields_of, pack
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import Participants
from weft.sums.scalar_sums import over_attending, pack_scalars
from weft_neural.block_announcement import MOST_COLUMNS, Held
from weft_neural.cuda_device_and_vectors import Device, device_of
from weft_neural.messages import (
    BUILD,
    FINISH,
    PLAN,
    SCALE,
    TRAIN,
    BuildReply,
    BuildRequest,
    FinishRequest,
    PlanReply,
    PlanRequest,
    ScaledColumns,
    ScaleReply,
    ScaleRequest,
    TrainReply,
    TrainRequest,
)
from weft_neural.party_neural_network import Labelled, PartyNetwork
from weft_neural.party_samples import Holdings
from weft_neural.scaling import Scaling, scaled
from weft_neural.settings import RUNS, Block, NeuralSettings
from weft_neural.trained_model import NeuralModel
from weft_neural.weighted_means_on_host_or_device import Vector, vector_of

#: More than that is no loss of a network that learns.
_LARGEST = 2.0**40
#: The reply to a message that comes again after an interruption: the first one was sent already.
_UNREAD = TrainReply(
    extractors=np.zeros(0, np.float32), classifier=np.zeros(0, np.float32), sums=b""
)


class Source(Protocol):
    """Where a party's samples come from."""

    def labels(self) -> Sequence[NDArray[Any]]:
        """All labels that there are."""

    def holdings(self, blocks: Mapping[str, Block]) -> Holdings:
        """Its part of these blocks."""


class NeuralParty:
    """One member of a neural run, as the channel sees it.

    Parameters
    ----------
    name
        Name in the federation.
    source
        What it trains on.
    keys
        Its identity, and the secret that the parties share and the coordinator never gets.
    consent
        What it takes part in.
    cipher
        What hides its losses, accuracies and column sums among those of others.
    device
        Where it computes.
    memory
        Keeps what it draws in this run: another party with this memory, made of the same things,
        is brought to the same state by the same messages.
    expected
        The settings that it agreed to; None: any that it is told.
    private
        Draw minibatches and test samples with the run secret besides the seed, which the
        coordinator knows.

    Attributes
    ----------
    own, received
        Its network after its last steps, and the copy of the server's that it got at the end; None
        before.
    """

    #: The phase after which it has models: their attributes, and names of their files.
    saved_models: ClassVar = {FINISH.name: (("own", "own.npz"), ("received", "received.npz"))}

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        keys: Keys,
        consent: Consent | None = None,
        cipher: str = "pad",
        device: Device = "auto",
        memory: Memory | None = None,
        expected: NeuralSettings | None = None,
        private: bool = False,
    ) -> None:
        self.name = name
        self._source = source
        self._consent = consent or Consent.open(name)
        self._device = device_of(device)
        self._expected, self._private = expected, private
        self._draws = RandomnessLog(memory)
        self._keyring = Keyring(keys, cipher, self._consent.terms, self._draws)
        self._cipher = self._keyring.cipher
        self._announcing = AnnouncingParty(
            name, self._consent, self._keyring, self._draws, labels=source.labels
        )
        self._settings: NeuralSettings | None = None
        self._place = Place(0, 1, labels=True, label_parties=1)
        self._held: Holdings | None = None
        self._blocks: dict[str, Block] = {}
        self._classes: NDArray[Any] = np.zeros(0)
        self._scaling: Scaling | None = None
        self._agreed: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._local: PartyNetwork | None = None
        self._replays = False
        self._skipped: TrainRequest | None = None
        self._turn = self._samples = 0
        self.own: NeuralModel | None = None
        self.received: NeuralModel | None = None
        self._answers: dict[str, Answer] = {
            **self._announcing.answers(),
            **answers(
                answer(PLAN, self._plan),
                answer(SCALE, self._scale),
                answer(BUILD, self._build),
                answer(TRAIN, self._train),
                answer(FINISH, self._finish),
            ),
        }

    @property
    def exposure(self) -> str:
        """What this run has exposed of it, in one line, for its own eyes."""
        return f"the weights of its own network to the coordinator, in {self._turn} round(s)"

    def on(self, phase: Phase[Any, Any], message: Message) -> Message:
        """Answer one phase."""
        known = self._answers.get(phase.name)
        if known is None:
            raise ProtocolError(f"phase '{phase.name}' is not known in a neural run")
        if type(message) is not known.phase.request:
            raise ProtocolError(f"phase '{phase.name}' came with a message of another phase")
        if self._draws.lasting:
            self._draws.hear(phase.name, pack(fields_of(message)))
        self._consent.check_company(message)
        self._cipher.begin(message, phase.name)
        return known.handle(message)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """While the messages of before an interruption come again: all but the last."""
        with self._draws.replaying():
            self._replays = True
            try:
                yield
            finally:
                self._replays = False

    def close(self) -> None:
        """The run is over; nothing is left open."""

    def _drawing(self, settings: NeuralSettings) -> bytes:
        """What its draws depend on."""
        seed = f"{settings.seed}".encode()
        if not self._private:
            return seed
        return self._keyring.run_secret.derive("weft minibatches", seed).reveal()

    # ── beginning ─────────────────────────────────────────────────────────────────────────

    def _plan(self, message: PlanRequest) -> PlanReply:
        """What is to be trained; tells which blocks it has, and of how many samples."""
        if self._settings is not None:
            raise ProtocolError(f"party {self.name} was told the plan of this run already")
        settings = NeuralSettings.from_json(message.settings)
        if self._expected is not None and settings.to_json() != self._expected.to_json():
            raise ProtocolError(
                f"party {self.name} was told another plan than the one that it agreed to; stop "
                "this run"
            )
        self._announcing.check_parties(message.parties)
        classes = self._announcing.agreed(message.classes)
        assert classes is not None
        self._consent.check_networks(RUNS)
        self._consent.check_cipher(self._cipher.name)
        held = self._source.holdings(settings.blocks)
        held = held.sharing(settings.test_share, self._drawing(settings), self.name)
        self._check_enough(len(held))
        self._settings, self._held = settings, held
        self._classes = classes
        self._blocks = {
            name: msgspec.structs.replace(block, shape=held.blocks[name].shape[1:])
            for name, block in settings.blocks.items()
            if name in held.blocks
        }
        keys = self._keyring.announce(message.run)
        self._place = Place(message.number, message.parties, True, message.parties)
        told = msgspec.json.encode(self._told(held, message.run)).decode()
        return PlanReply(keys=keys, held=told, samples=len(held))

    def _told(self, held: Holdings, run: bytes) -> list[Held]:
        told = []
        for name in self._blocks:
            block = held.blocks[name]
            columns = f"columns {run.hex()} {list(held.columns.get(name, ()))}"
            mark = self._keyring.run_secret.fingerprint(columns)
            told.append(Held(name, block.shape[1:], block.dtype == np.uint8, mark))
        return told

    def _check_enough(self, samples: int) -> None:
        least = self._consent.terms.min_batch
        if samples < least:
            raise DataError(
                f"party {self.name} has {samples} sample(s) to train on, fewer than min_batch = "
                f"{least}; bring more, or leave it out"
            )

    def _scale(self, message: ScaleRequest) -> ScaleReply:
        """Its part of the sums of columns."""
        if self._scaling is None:
            scaling = Scaling(self._holdings, self._scaled_blocks(message.columns))
            self._meet(message.participants)
            self._scaling = scaling
        name, sums = self._scaling.answer(message)
        return ScaleReply(sums=pack_scalars(self._cipher, name, *sums.tolist()))

    def _meet(self, participants: Participants | None) -> None:
        """Take the list of all parties, among whom its numbers are hidden."""
        alone = self._consent.alone(self._place.parties)
        self._keyring.meet(participants, self._place, alone=alone)

    def _scaled_blocks(self, columns: ScaledColumns | None) -> dict[str, int]:
        """Columns of all scaled blocks: those of the plan, its own as wide as they are."""
        if columns is None:
            raise malformed("columns", "is missing")
        names, counts = columns.blocks.tolist(), columns.widths.tolist()
        planned = {} if self._settings is None else self._settings.blocks
        widths = dict(zip(names, counts, strict=False))
        own = {name: prod(self._blocks[name].shape or ()) for name in names if name in self._blocks}
        if (
            not len(names) == len(counts) == len(widths)
            or any(n not in planned or planned[n].scaling != "standard" for n in names)
            or any(not 1 <= w <= MOST_COLUMNS for w in counts)
            or any(widths[name] != width for name, width in own.items())
        ):
            raise ProtocolError("columns are to be scaled that are not those of the plan")
        return widths

    def _build(self, message: BuildRequest) -> BuildReply:
        """Make the network; tells its sizes, and the first weights of blocks that it is asked."""
        if self._settings is None or self._local is not None:
            raise ProtocolError(f"party {self.name} builds one network in a run, after its plan")
        if self._scaling is not None:
            self._agreed = self._scaling.take(message.scales)
        else:
            self._meet(message.participants)
        held = self._holdings
        self._local = PartyNetwork(
            self.name,
            self._settings,
            self._blocks,
            self._classes,
            self._labelled(held),
            None if held.test is None else self._labelled(held.test),
            self._device,
            drawing=self._drawing(self._settings),
        )
        self._samples = len(held)
        # The samples are in the device's memory now, as the network reads them.
        self._held = None
        net = self._local.net
        given = message.give.tolist()
        if len(set(given)) < len(given) or not set(given) <= set(self._blocks):
            raise ProtocolError("first weights are asked for of blocks that this party lacks")
        return BuildReply(
            features=np.array(list(net.features.values()), np.int64),
            sizes=np.array(list(net.sizes.values()), np.int64),
            extractors=self._local.extractors_of(given) if given else None,
        )

    def _labelled(self, held: Holdings) -> Labelled:
        every = np.ones(len(held), bool)
        labels = encode_labels(held.labels, every, self._classes, f"party {self.name}")
        return Labelled(scaled(held, self._agreed), labels.astype(np.int64))

    @property
    def _holdings(self) -> Holdings:
        if self._held is None:
            raise ProtocolError(
                f"party {self.name} was not told the plan of this run, or is past it"
            )
        return self._held

    # ── rounds ────────────────────────────────────────────────────────────────────────────

    def _train(self, message: TrainRequest) -> TrainReply:
        """Local steps from the server's weights; tells its own weights after them."""
        local = self._network
        self._check_turn(message.turn)
        if message.classifier is None:
            # Its steps go on from its own classifier, which nobody else has.
            self._catch_up()
        if self._replays and self._settings is not None and self._settings.begin == "server":
            # What these steps would lead to is overwritten by the next message, unless none comes.
            self._skipped = message
            return _UNREAD
        self._skipped = None
        before = self._take(message)
        loss = local.train(message.turn)
        # As the coordinator weighs it, whom nobody need believe a weight.
        weighs = self._settings is not None and self._settings.weigh == "samples"
        total = loss * (self._samples if weighs else 1)
        if not (abs(total) < _LARGEST and local.sound):
            raise ProtocolError(
                f"party {self.name}: its loss or weights are no sensible numbers any more in round "
                f"{message.turn}; lower rate"
            )
        sums = [total]
        if message.evaluate:
            sums += [*_scores(before), *_scores(local.measured())]
        extractors, classifier = local.weights()
        # Next to weights in the clear, by which the coordinator could measure losses itself.
        some = over_attending(self._cipher, message.attending, harmless=True)
        return TrainReply(
            extractors=extractors,
            classifier=classifier,
            sums=pack_scalars(self._cipher, "sums", *sums, over=some),
        )

    def _check_turn(self, turn: int) -> None:
        """Rounds come in order, and no more of them than agreed: each shows something."""
        last = 0 if self._settings is None else self._settings.rounds
        if not self._turn < turn <= last or self.own is not None:
            raise ProtocolError(
                f"party {self.name} was asked for round {turn} after round {self._turn} of {last}; "
                "stop this run"
            )
        self._turn = turn

    def _finish(self, message: FinishRequest) -> Nothing:
        """The server's last weights: the party keeps its own network, and its copy of theirs."""
        if self.own is None:
            # One that was not heard is told once more.
            self._catch_up()
            self.own = self._network.model(self._agreed)
        self._take(message)
        self.received = self._network.model(self._agreed)
        return Nothing()

    def _catch_up(self) -> None:
        """Take the steps that were skipped while the party was brought back."""
        if self._skipped is not None:
            message, self._skipped = self._skipped, None
            self._take(message)
            self._network.train(message.turn)

    def _take(self, message: TrainRequest | FinishRequest) -> float | None:
        """Take over the weights in a message; the accuracy with them, if it is measured."""
        net = self._network.net
        extractors = vector_of(message.extractors, "extractors", len(net.extractor_weights))
        classifier: Vector | None = None
        if message.classifier is not None:
            classifier = vector_of(message.classifier, "classifier", len(net.classifier_weights))
        measure = isinstance(message, TrainRequest) and message.evaluate
        return self._network.take(extractors, classifier, measure=measure)

    @property
    def _network(self) -> PartyNetwork:
        if self._local is None:
            raise ProtocolError(f"party {self.name} has no network yet")
        return self._local


def _scores(accuracy: float | None) -> tuple[float, float, float]:
    """Whether there is an accuracy, it and its square: sums that give mean and spread."""
    return (0.0, 0.0, 0.0) if accuracy is None else (1.0, accuracy, accuracy**2)
