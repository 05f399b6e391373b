"""A neural run in one process: parties, channel, coordinator, and the models they end with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.crypto.keys import PartyKeys, check_keys, ephemeral_keys
from weft.errors import ConfigError
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import Channel, LocalChannel, Sink
from weft_neural.coordinator import Judge, coordinate_neural
from weft_neural.cuda_device_and_vectors import Device
from weft_neural.history import NeuralOutcome, Round
from weft_neural.party import NeuralParty, Source
from weft_neural.settings import NeuralSettings
from weft_neural.trained_model import NeuralModel


@dataclass
class NeuralTrained(NeuralOutcome):
    """What training gave, with what only parties have.

    Attributes
    ----------
    own
        Every party's network after its last steps.
    received
        Every party's copy of the server's last model.
    """

    own: dict[str, NeuralModel]
    received: dict[str, NeuralModel]
    channel: LocalChannel


class NeuralFederation:
    """Parties that train networks together in this process.

    Parameters
    ----------
    sources
        Party name to what it trains on.
    device
        Where all parties compute; weights stay in its memory between them and the server.
    record
        True: keep all messages in the channel's transcript; a function gets them instead.
    packed
        Let every message travel as bytes, as over a network.
    keys
        The parties' keys, from files, on which minibatches then depend too; None: made for every
        run.
    consents
        What each party takes part in; None: in anything, since all data is in one hand here.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        device: Device = "auto",
        record: bool | Sink = False,
        packed: bool = False,
        timeout: float | None = None,
        keys: Mapping[str, PartyKeys] | None = None,
        consents: Mapping[str, Consent] | None = None,
    ) -> None:
        if not sources:
            raise ConfigError("a federation needs at least one party")
        check_keys(keys, sources)
        self._sources = dict(sources)
        self._device: Device = device
        self._record, self._packed, self._timeout = record, packed, timeout
        self._keys = keys
        self._consents = consents or {name: Consent.open(name) for name in sources}

    def train(
        self,
        settings: NeuralSettings,
        *,
        classes: Sequence[Any] | None = None,
        progress: Callable[[Round], None] | None = None,
        judge: Judge | None = None,
        through: Callable[[Channel], Channel] | None = None,
    ) -> NeuralTrained:
        """Run HyFEM; see `coordinate_neural`.

        Parameters
        ----------
        through
            Puts another channel around that to the parties, such as one on which some are away.
        """
        keys = self._keys or ephemeral_keys(tuple(self._sources))
        parties = {
            name: NeuralParty(
                name,
                source,
                keys=keys[name],
                consent=self._consents[name],
                cipher=settings.cipher,
                device=self._device,
                private=self._keys is not None,
            )
            for name, source in self._sources.items()
        }
        channel = LocalChannel(
            {name: party.on for name, party in parties.items()},
            timeout=self._timeout,
            record=self._record,
            packed=self._packed,
        )
        outcome = coordinate_neural(
            channel if through is None else through(channel),
            settings,
            classes=classes,
            progress=progress,
            judge=judge,
        )
        own = {name: party.own for name, party in parties.items() if party.own is not None}
        received = {name: p.received for name, p in parties.items() if p.received is not None}
        return NeuralTrained(**vars(outcome), own=own, received=received, channel=channel)
