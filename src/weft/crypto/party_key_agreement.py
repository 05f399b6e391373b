"""Who takes part in a run, as one party was told: what it announced, and what it shares with each.

Everything that parties hide from the coordinator depends on this list, which every party checks
against its own place in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from weft.array_types import Ints
from weft.crypto.ciphers.contribution_masks import ContributionMasks
from weft.crypto.ciphers.known_ciphers import new_cipher
from weft.crypto.key_and_seed_messages import RunKeys, signed_content
from weft.crypto.pads.cohort_mask_neighbours import CohortHolders
from weft.crypto.pair_secrets import PairSecrets
from weft.crypto.party_key_pairs import ExchangeKey, Identity
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.crypto.run_participants import ParticipantList, company_digest, read_participants
from weft.crypto.scalar_masks import Masks
from weft.crypto.secret_bytes import KEY_BYTES, Secret
from weft.errors import ProtocolError
from weft.guards.privacy_terms import OPEN, Terms
from weft.protocol.shared_fields import NONCE, Company, Participants


class Keys(Protocol):
    """What a party brings along: its identity, and the secret that the parties share."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def run(self) -> Secret: ...


@dataclass(frozen=True)
class Place:
    """What a party was told of its own place among the participants.

    Attributes
    ----------
    number, parties
        Its number, and how many there are.
    labels
        Whether it has labels of some sample.
    label_parties
        How many parties have.
    """

    number: int
    parties: int
    labels: bool
    label_parties: int


class PartyKeyAgreement:
    """What a party knows of the others of one run, and shares with them.

    Parameters
    ----------
    keys
        Identity and run secret.
    cipher
        Name of the cipher under every sum.
    terms
        Over how many parties sums of scalars must go.
    draws
        Makes and remembers what is random; None: remembers it as long as it lives.
    """

    def __init__(
        self, keys: Keys, cipher: str, terms: Terms = OPEN, draws: RandomnessLog | None = None
    ) -> None:
        self._keys = keys
        self._draws = RandomnessLog() if draws is None else draws
        self._terms = terms
        self._few_scalars = False
        self.cipher = new_cipher(cipher)
        self.cipher.party_name = keys.name
        self._run_id = self._nonce = b""
        self._participants: ParticipantList | None = None
        #: What it announced of its keys in this run.
        self._announced: RunKeys | None = None
        #: A hash of who takes part, once it was told.
        self._company = b""
        self._exchange: ExchangeKey | None = None
        self._pairs: PairSecrets | None = None

    @property
    def run_secret(self) -> Secret:
        """What the parties share and the coordinator lacks."""
        return self._keys.run

    @property
    def run_id(self) -> bytes:
        """The coordinator's random name of the run; empty before it is told."""
        return self._run_id

    def bound_secret(self, label: str) -> Secret:
        """A key of the run secret that fits this run alone, whatever anybody else repeats.

        It depends on what every party drew for the run; under a cipher that hides nothing, on the
        run's name only.
        """
        if self.cipher.name == "plain":
            return self._keys.run.derive(label, self._run_id)
        if not self._company:
            raise ProtocolError(
                f"party {self._keys.name} was not told who takes part; stop this run"
            )
        return self._keys.run.derive(label, self._company)

    def take_company(self, told: Company | None, parties: int = 0) -> None:
        """Take the list of who takes part, before anything is made that depends on it.

        ``parties``: how many it was told there are; zero: it was not told. None is told under a
        cipher that hides nothing.
        """
        if self.cipher.name == "plain":
            return
        if told is None or self._announced is None:
            raise ProtocolError(
                f"party {self._keys.name} was not told who takes part; stop this run"
            )
        card = self._announced.card(self._keys.name)
        found = company_digest(told, self._run_id, card, parties)
        if self._company not in (b"", found):
            raise ProtocolError(
                f"party {self._keys.name} was told of other participants before; stop this run"
            )
        self._company = found

    def mark(self, run_id: bytes) -> str:
        """By which equal run secrets are known, other in every run."""
        return self._keys.run.fingerprint(f"run {run_id.hex()}")

    def announce(self, run_id: bytes) -> RunKeys:
        """What everybody may know: public keys, and a mark by which equal secrets are known.

        Drawn once: whoever asks again in the same run is told the same.
        """
        if self._announced is not None and self._run_id == run_id:
            return self._announced
        if self._run_id:
            raise ProtocolError(f"party {self._keys.name} was told of two runs; start a new one")
        self._run_id = run_id
        self._nonce = self._draws.random("nonce", NONCE)
        self._exchange = self._draw_exchange_key()
        exchange, identity = self._exchange.public, self._keys.identity
        self._announced = RunKeys(
            public=identity.public.to_bytes(),
            nonce=self._nonce,
            exchange=exchange,
            signature=identity.sign(signed_content(run_id, self._nonce, exchange)),
            mark=self.mark(run_id),
        )
        return self._announced

    def _draw_exchange_key(self) -> ExchangeKey:
        """A key pair for this run alone: the identity only signs its public half."""
        return ExchangeKey(Secret(self._draws.random("exchange key", KEY_BYTES)))

    def meet(
        self,
        told: Participants | None,
        place: Place,
        *,
        alone: bool = False,
    ) -> None:
        """Take the list of participants, once; then scalars can be masked.

        Parameters
        ----------
        told
            The list; None: under a cipher that hides nothing.
        place
            What the party was told of its own place in it.
        alone
            Whether the run has no other party.
        """
        self.cipher.party = place.number
        if self.cipher.name == "plain":
            return
        if (
            told is None
            or self._exchange is None
            or self._announced is None
            or self._participants is not None
        ):
            raise ProtocolError(
                f"party {self._keys.name} must be told once who takes part; stop this run"
            )
        if self._company:
            self.take_company(told, place.parties)
        found = read_participants(told, self._run_id)
        card = self._announced.card(self._keys.name)
        found.insist_on(place.number, card, place.parties, labels=place.labels)
        if len(found.labels) != place.label_parties:
            raise ProtocolError(
                f"party {self._keys.name} was told of other parties with labels than the list of "
                "participants; stop this run"
            )
        self._participants = found
        self._pairs = PairSecrets(self._keys.run, self._exchange, found, place.number)
        self.cipher.masks = Masks(self._pairs, found, place.number, self._terms, alone=alone)
        self.few_scalars(self._few_scalars)

    def few_scalars(self, few: bool) -> None:
        """Whether sums of scalars may go over fewer parties than terms ask for."""
        self._few_scalars, masks = few, self.cipher.masks
        if isinstance(masks, Masks):
            masks.allow_few(few)

    def know_holders(self, rows: tuple[Ints, Ints], columns: tuple[Ints, Ints]) -> None:
        """Take who holds each shared cohort: how many, and their numbers one after the other.

        Contributions to sums can then be hidden from other holders, too.
        """
        masks = self.cipher.masks
        if self._participants is None or not isinstance(masks, Masks):
            return
        party, parties = self.cipher.party, len(self._participants.cards)
        axes = [
            CohortHolders(*axis, party, parties, masks.fewest, masks.pair_seed)
            for axis in (rows, columns)
        ]
        self.cipher.sum_masks = ContributionMasks(axes[0], axes[1], party, masks.pair_seed)

    @property
    def _met(self) -> ParticipantList:
        if self._participants is None:
            raise ProtocolError(f"party {self._keys.name} was not told who takes part")
        return self._participants

    @property
    def _secrets(self) -> PairSecrets:
        if self._pairs is None:
            raise ProtocolError(f"party {self._keys.name} was not told who takes part")
        return self._pairs

    def lock(self, peer: int, content: Secret, purpose: str) -> bytes:
        """A letter to another party of this run, which opens for that purpose alone."""
        return self._secrets.lock(peer, content, purpose)

    def unlock(self, peer: int, letter: bytes, purpose: str) -> Secret:
        """What another party wrote to this one in this run, for that purpose."""
        return self._secrets.unlock(peer, letter, purpose)

    def facts_key(self) -> Secret | None:
        """The key under which holders confirm facts of this run; None under cipher plain."""
        if self._participants is None:
            return None
        return self._keys.run.derive("weft facts", self._participants.digest)
