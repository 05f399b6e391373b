"""A federation in one process: parties, channel, coordinator, and the model they agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from operator import attrgetter, methodcaller
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder
from weft.crypto.keys import PartyKeys, check_keys, ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data.blank_cells import settle_missing
from weft.data.columns.table_transformation import FileReading, Transformation
from weft.data.site_intercept_column import site_feature
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.federation.coordinator import announce_for, assemble, coordinate
from weft.federation.model import Model
from weft.federation.party import Party
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.coordinator import Outcome
from weft.federation.release.reader_join_second_moments import SecondMoments
from weft.federation.release.reader_opens_release import Released, open_release
from weft.federation.train_without_messages import check_settings, mover_of
from weft.guards import OPEN, Terms
from weft.matching.holding_map import HoldingMap
from weft.matching.id_and_name_forms import normal_features
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import Channel, LocalChannel, Sink
from weft.protocol.metering import EncryptionCost, Spent
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.run_settings import STAND_IN, Settings
from weft.solvers.solver_interfaces_and_results import Checkpointing, Record
from weft.sums.gap_certificate import Certificate

if TYPE_CHECKING:
    from weft.federation.release.reader_standard_errors import Inference

_T = TypeVar("_T")

#: Name of the reader that is this process.
_HERE = ""


@dataclass
class Trained(Outcome):
    """What training gave: the model, how the run went, and who held what.

    ``second_moments`` are matrices that the settings asked for besides, else None; they are for
    this process, and no result that is written down holds them. ``inference`` has standard errors,
    or why there are none; None: they were not asked for.
    """

    model: Model
    second_moments: SecondMoments | None
    inference: Inference | None
    channel: LocalChannel
    encryption: Spent


class Federation:
    """Parties that train together in this process.

    Parameters
    ----------
    tiles
        Party name to the tiles it holds.
    preprocessing
        How the tables become one problem.
    record
        True: keep all messages in the channel's transcript, to see what each side sees; a
        `Recorder` writes them to a file instead.
    timeout
        Seconds a party may take for a phase.
    store
        Folder for checkpoints.
    packed
        Let every message travel as bytes, as over a network.
    keys
        The parties' keys, from files; None: made for every run.
    terms
        What every party insists on; by default nothing, since all data is in one hand here.
    consents
        What each party takes part in, in the place of ``terms``.
    ledger
        Where the parties keep count of the sums that they open and show; None: nowhere.
    readings
        How the parties' files were read, for the model to have new ones read alike.
    threads
        Parties that compute at once, to the same bits.
    """

    def __init__(
        self,
        tiles: Mapping[str, Sequence[Tile]],
        preprocessing: Preprocessing | None = None,
        *,
        record: bool | Sink = False,
        timeout: float | None = None,
        store: Path | None = None,
        packed: bool = False,
        keys: Mapping[str, PartyKeys] | None = None,
        terms: Terms = OPEN,
        consents: Mapping[str, Consent] | None = None,
        ledger: Ledger | None = None,
        readings: Mapping[str, FileReading] | None = None,
        threads: int = 1,
    ) -> None:
        if not tiles:
            raise ConfigError("a federation needs at least one party")
        if threads < 1:
            raise ConfigError(f"parties cannot compute on {threads} threads; give 1 or more")
        check_keys(keys, tiles)
        _check_consents(consents, tiles)
        self.preprocessing = preprocessing or Preprocessing()
        if self.preprocessing.missing == "mean" and self.preprocessing.scaling != "standard":
            raise ConfigError(
                "missing = 'mean' fills blank cells with the column's mean, which takes "
                "scaling = 'standard'; set it, or use missing = 'zero'"
            )
        self._tiles = {
            name: tuple(settle_missing(t, self.preprocessing.missing, name) for t in held)
            for name, held in tiles.items()
        }
        self._record = record
        self._timeout = timeout
        self._store = store
        self._packed = packed
        self._threads = threads
        self._keys = keys
        self._consents = consents or {name: Consent(name, terms) for name in tiles}
        self._ledger = ledger
        self._readings = dict(readings or {})
        self._start: Model | None = None
        #: Whoever runs all parties in one process gets the model, whatever else was agreed.
        self._reader = Identity.new()
        self.parties: dict[str, Party] = {}
        #: Of the newest run; before the first there are no costs to read from it.
        self._adder = Adder("plain")

    def assemble(
        self, settings: Settings
    ) -> tuple[LocalChannel, HoldingMap, Adder, NDArray[Any] | None]:
        """Make the parties, match their samples and features, agree on scaling."""
        channel, run = self._open(settings), token_bytes(16)
        shares = algorithm_of(settings.solver).shares
        announced = announce_for(channel, self.preprocessing, settings, run, shares=shares)
        holdings = assemble(channel, self.preprocessing, settings, announced, run, self._adder)
        return channel, holdings, self._adder, announced.classes

    def _open(self, settings: Settings) -> LocalChannel:
        """Make the parties, and the channel to them."""
        self._adder = Adder(settings.cipher)
        # Not from the seed, which the coordinator knows: keys must not be its to compute.
        keys = self._keys or ephemeral_keys(tuple(self._tiles))
        self._identities = {name: keys[name].identity.public for name in self._tiles}
        self.parties = {
            name: Party(name, held, keys=keys[name], **self._made_of(name, settings))
            for name, held in self._tiles.items()
        }
        return LocalChannel(
            {name: party.on for name, party in self.parties.items()},
            timeout=self._timeout,
            record=self._record,
            packed=self._packed,
            threads=self._threads,
        )

    def _made_of(self, name: str, settings: Settings) -> dict[str, Any]:
        """What a party is made of, besides its tiles and keys."""
        return {
            "cipher": settings.cipher,
            "store": self._store,
            "start": self._start,
            "consent": self._consents[name],
            "ledger": self._ledger,
            "readers": {_HERE: self._reader.public},
            # Without a recording there is nothing to compare a hash with: simulations.
            "signs_transcript": self._record is not False,
            "missing": self.preprocessing.missing,
            "sample_columns": self.preprocessing.sample_columns,
            "reading": self._readings.get(name),
        }

    def train(
        self,
        settings: Settings,
        *,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        start: Model | None = None,
        through: Callable[[Channel], Channel] | None = None,
        follow: Callable[[str], None] | None = None,
        without_messages: bool = False,
    ) -> Trained:
        """Run an algorithm from matching to the released model.

        Parameters
        ----------
        progress
            Told every iteration.
        start
            A model to start from, of which every party uses its own features' weights.
        through
            Puts another channel around that to the parties, such as one on which some are away.
        follow
            Told how far matching is, in a clause, where there are many ids.
        without_messages
            Go through HyFDCA's iterations without messages between the parties, but for those of
            certificates: the same bits in about half of the time, for many small parties.
            For tables that are nobody's secret; costs of messages are not counted.
        """
        if without_messages:
            seen = bool(self._record) or self._ledger is not None or self._packed
            apart = checkpointing is not None or through is not None or self._timeout is not None
            terms = [consent.own_terms for consent in self._consents.values()]
            check_settings(settings, terms, seen=seen or apart)
        try:
            return self._train(
                settings, progress, checkpointing, start, through, follow, without_messages
            )
        finally:
            self.look(methodcaller("close"))

    def _train(
        self,
        settings: Settings,
        progress: Callable[[Record], None] | None,
        checkpointing: Checkpointing | None,
        start: Model | None,
        through: Callable[[Channel], Channel] | None,
        follow: Callable[[str], None] | None,
        without_messages: bool,
    ) -> Trained:
        self._start = start
        self._check_penalty_factors(settings)
        channel = self._open(settings)
        channel.follower = follow
        if without_messages:
            channel.mover_of = mover_of(self.parties)
        outcome = coordinate(
            channel if through is None else through(channel),
            self.preprocessing,
            settings,
            progress=progress,
            checkpointing=checkpointing,
            start_lam=None if start is None else start.lam or STAND_IN,
            adder=self._adder,
        )
        if any(self.look(attrgetter("remarks")).values()):
            # Which levels are rare, and how rare, is nothing for a report that is handed on.
            outcome.result.notes.append(
                "some cells of declared columns have levels without a column of their own, or lie "
                "outside of their range, and count as declared; 'weft check' names them"
            )
        released = self._join(outcome)
        if settings.frees_weights:
            _tell_proof(outcome, released.model)
        return Trained(
            **vars(outcome),
            **released._asdict(),
            channel=channel,
            encryption=self._spent(),
        )

    def _check_penalty_factors(self, settings: Settings) -> None:
        """Refuse factors of columns that nobody has; those of declared columns are made later."""
        held = [tile for tiles in self._tiles.values() for tile in tiles]
        if any(tile.declared is not None for tile in held):
            return
        known = {name for tile in held for name in normal_features(tile.features).tolist()}
        if self.preprocessing.reference_site is not None:
            sites = np.array([site_feature(party) for party in self._tiles], dtype=object)
            known |= set(normal_features(sites).tolist())
        named = np.array(list(settings.penalty_factors), dtype=object)
        for name, normal in zip(named.tolist(), normal_features(named).tolist(), strict=True):
            if normal not in known:
                near = get_close_matches(name, [str(feature) for feature in known], n=1)
                closest = f" (the closest is '{near[0]}')" if near else ""
                raise ConfigError(
                    f"penalty_factors names '{name}', but no party has a column '{name}'{closest}; "
                    "correct the name"
                )

    def _join(self, outcome: Outcome) -> Released:
        """Open what the parties sealed."""
        released = open_release(
            outcome.letters[_HERE],
            outcome.head,
            outcome.settings,
            reader=self._reader,
            writers=self._identities,
            run=outcome.run,
            overlapping=bool(outcome.result.gone),
        )
        # Whoever runs all parties here has all of their columns.
        made = Transformation.joined(self.look(attrgetter("transformation")).values())
        return released._replace(model=replace(released.model, transformation=made.to_json()))

    def look(self, what: Callable[[Party], _T]) -> dict[str, _T]:
        """What every party of the newest run has, for whoever owns all of them."""
        return {name: what(party) for name, party in self.parties.items()}

    def encryption_costs(self) -> tuple[dict[str, EncryptionCost], EncryptionCost]:
        """What encryption has cost each party and the coordinator in the newest run, up to now.

        ``progress`` may call this after every iteration.
        """
        spent = self.look(attrgetter("encryption"))
        parties = {name: replace(cost) for name, cost in spent.items()}
        return parties, replace(self._adder.cost)

    def _spent(self) -> Spent:
        parties, coordinator = self.encryption_costs()
        slowest = max(parties.values(), key=lambda cost: cost.seconds)
        return Spent(slowest, sum(parties.values(), EncryptionCost()), coordinator)


def _tell_proof(outcome: Outcome, model: Model) -> None:
    """Let a run of weights without a penalty end with what is proved of its model."""
    proof = model.certificate
    outcome.result.certificate = Certificate(
        int(proof["iteration"]), tuple(proof["primal"]), tuple(proof["dual"])
    )
    outcome.head = msgspec.structs.replace(outcome.head, lam=model.lam)


def _check_consents(consents: Mapping[str, Consent] | None, parties: Iterable[str]) -> None:
    for name in parties:
        if consents is not None and name not in consents:
            raise ConfigError(f"nothing says what party {name} consents to; give its Consent too")
