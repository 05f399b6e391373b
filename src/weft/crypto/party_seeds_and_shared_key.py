"""A party's keys of one run: made by the parties, carried by the coordinator in sealed boxes.

The first holder of every shared cohort makes its seed and seals it to the other holders, one box
per pair of parties. Where the cipher has a key that all parties share (BFV, Paillier), the first
party of the federation makes it and seals it to everyone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.ciphers.block_format import DEALT_CIPHERS
from weft.crypto.key_and_seed_messages import SeedBoxes, SeedPlan
from weft.crypto.pads.pad_streams import Streams
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.crypto.party_key_agreement import Keys, PartyKeyAgreement, Place
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.crypto.secret_bytes import Secret
from weft.crypto.seed_letters import (
    RUN_KEY,
    SEED,
    AxisLetters,
    Cohort,
    Dealt,
    read_dealt,
    read_seeds,
    receivers_of,
    write_seeds,
)
from weft.errors import ProtocolError
from weft.fast_small_array_operations import among
from weft.guards.privacy_terms import OPEN, Terms
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import Boxes

# Loaded by those whose cipher is of such a scheme: they bring large libraries.
if TYPE_CHECKING:
    from weft.crypto.ciphers.bfv_by_seal import BfvSecret
    from weft.crypto.ciphers.paillier_scheme import PaillierSecret

AXES = ("rows", "columns")
#: The number of the party that deals to all others what the run's key depends on.
_DEALER = 0


@dataclass(frozen=True)
class MadeSeeds:
    """What a party made for the others: boxes, and the public half of a key that all share."""

    boxes: Boxes | None = None
    public: bytes | None = None


class Keyring(PartyKeyAgreement):
    """The keys of one party in one run."""

    def __init__(
        self, keys: Keys, cipher: str, terms: Terms = OPEN, draws: RandomnessLog | None = None
    ) -> None:
        super().__init__(keys, cipher, terms, draws)
        self._pad_key: Secret | None = None
        self._start: dict[str, Ints] = {}
        self._seeds: dict[str, NDArray[np.uint8]] = {}
        self._letters: dict[str, AxisLetters] = {}
        self._places: list[Ints] = []
        self._dealt: Dealt | None = None
        self._taken = False
        self._shared: PaillierSecret | BfvSecret | None = None

    def __repr__(self) -> str:
        return f"Keyring({self._keys.name}, {self.cipher.name})"

    def __reduce__(self) -> Any:
        raise TypeError("a keyring is not to be pickled")

    def make(
        self,
        plan: SeedPlan | None,
        place: Place,
        rows: Ints,
        columns: Ints,
        *,
        alone: bool = False,
    ) -> MadeSeeds:
        """Make the seeds that fall to this party, and the boxes for the other holders.

        Parameters
        ----------
        plan
            Who takes part, and which seeds it makes for whom; None: under a cipher that needs none.
        place
            What the party was told of its own place among the others.
        rows, columns
            First local slot of each shared cohort, and where the last one ends.
        alone
            Whether the run has no other party.
        """
        self.cipher.party = party = place.number
        self.cipher.key = int(self._keys.run.fingerprint(f"key {self._run_id.hex()}")[:8], 16)
        if self.cipher.name == "plain":
            return MadeSeeds()
        if plan is None:
            raise ProtocolError(
                f"party {self._keys.name} was not told which seeds it makes, as cipher "
                f"'{self.cipher.name}' needs; stop this run"
            )
        self.meet(plan.participants, place, alone=alone)
        if plan.deal != (party == _DEALER):
            raise malformed("seeds.deal", "is for the first party")
        self._draw_seeds(plan, party, {"rows": rows, "columns": columns})
        public = self._deal(party)
        return MadeSeeds(Boxes.of(self._write(plan, party)), public)

    def opening_pads(self) -> OpeningPads | None:
        """Pads under what all parties may read in this run; None under cipher plain."""
        if self._pad_key is None:
            return None
        return OpeningPads(
            self._pad_key, self.cipher.party, len(self._met.cards), lasting=self._keys.run
        )

    def _draw_seeds(self, plan: SeedPlan, party: int, starts: dict[str, Ints]) -> None:
        """Seeds of the cohorts whose maker this party is; the others' come in letters."""
        self._places = []
        for axis, start in starts.items():
            told = plan.rows if axis == "rows" else plan.columns
            known = (told.maker >= 0) & (told.maker < len(self._met.cards))
            if len(told.maker) != len(start) - 1 or not known.all():
                raise malformed(f"seeds.{axis}.maker", "does not name one maker per shared cohort")
            numbers = told.cohort.tolist()
            if len(set(numbers)) != len(start) - 1 or len(numbers) != len(start) - 1:
                raise malformed(f"seeds.{axis}.cohort", "does not number the shared cohorts")
            if len(told.start) != len(plan.to) + 1:
                raise malformed(f"seeds.{axis}.start", "does not say what every receiver is given")
            cohorts = [Cohort(*each) for each in zip(numbers, np.diff(start).tolist(), strict=True)]
            letters = self._letters[axis] = AxisLetters(axis, cohorts, told.maker)
            count = len(letters.made_by(party))
            random = self._draws.random(f"seeds of {axis}", SEED * count)
            letters.make(party, random, receivers_of(told, plan.to.tolist()))
            self._start[axis] = start
            if told.place is not None:
                if len(told.place) != len(start) - 1:
                    raise malformed(f"seeds.{axis}.place", "does not tell one place per cohort")
                self._places.append(_spread(told.place, start))

    def _deal(self, party: int) -> bytes | None:
        """Draw what the first party deals to all; returns the public half of a shared key."""
        if party != _DEALER:
            return None
        run_key, shared = self._draws.random("run key", RUN_KEY), b""
        if self.cipher.name in DEALT_CIPHERS:
            kind = _shared_kind(self.cipher.name)
            shared = self._draws.take("shared key", lambda: kind.new().to_bytes())
        self._take_dealt(Dealt(Secret(run_key), Secret(shared)))
        return None if self._shared is None else _public_half(self._shared)

    def _take_dealt(self, dealt: Dealt) -> None:
        """The run's key follows from the run secret, from what was dealt, and from the list."""
        self._dealt = dealt
        both = Secret(self._keys.run.reveal() + dealt.run_key.reveal())
        # With everybody's nonce in it, its own too: no run that a coordinator repeats, with seeds
        # of its own or of another run, brings pads back.
        self._pad_key = both.derive("weft pad", self._met.digest)
        if self.cipher.name in DEALT_CIPHERS:
            self._shared = _shared_kind(self.cipher.name).from_bytes(dealt.shared)

    def _write(self, plan: SeedPlan, party: int) -> list[bytes]:
        """One letter to each party to which this one gives something."""
        receivers = plan.to.tolist()
        parties = len(self._met.cards)
        if any(not 0 <= peer < parties or peer == party for peer in receivers) or len(
            set(receivers)
        ) < len(receivers):
            raise malformed("seeds.to", "names receivers who are none")
        letters = []
        for at, receiver in enumerate(receivers):
            parts = []
            for axis, told in (("rows", plan.rows), ("columns", plan.columns)):
                given = told.given[told.start[at] : told.start[at + 1]]
                if not among(given, self._letters[axis].made_by(party)).all():
                    raise malformed(f"seeds.{axis}.given", "names seeds that others make")
                parts.append(self._letters[axis].write(given.tolist()))
            content = write_seeds(self._dealt if party == _DEALER else None, parts)
            letters.append(self._secrets.lock(receiver, content))
        return letters

    def take(self, boxes: SeedBoxes | None) -> None:
        """Open the letters of the other makers, once; then the cipher is ready."""
        if self.cipher.name == "plain":
            return
        if boxes is None or not self._letters:
            raise ProtocolError(
                f"party {self._keys.name} was sent no seeds, or before it was told who makes them"
            )
        if self._taken:
            raise ProtocolError(f"party {self._keys.name} has taken the seeds of this run")
        sealed, makers = boxes.cut(), boxes.makers.tolist()
        if len(sealed) != len(makers) or sorted(makers) != self._expected():
            raise ProtocolError(
                f"party {self._keys.name} was not sent one letter from each maker of its seeds; "
                "stop this run"
            )
        self._taken = True
        for maker, letter in zip(makers, sealed, strict=True):
            if not self._read(maker, self._secrets.unlock(maker, letter)):
                raise ProtocolError(
                    f"the letter that party number {maker} wrote to {self._keys.name} is of other "
                    "cohorts"
                )
        self._ready()

    def _expected(self) -> list[int]:
        """From whom letters must come: makers of its seeds, and who deals the run's key."""
        makers = {_DEALER}.union(*(letters.makers.tolist() for letters in self._letters.values()))
        return sorted(makers - {self.cipher.party})

    def _read(self, maker: int, letter: Secret) -> bool:
        """Take what a maker wrote; false where it is not what this party should be given."""
        if maker == _DEALER:
            found = read_dealt(letter)
            if found is None or bool(found[0].shared.reveal()) != (
                self.cipher.name in DEALT_CIPHERS
            ):
                return False
            self._take_dealt(found[0])
            letter = found[1]
        return read_seeds(maker, letter, [self._letters[axis] for axis in AXES])

    def _ready(self) -> None:
        """Give the cipher what it needs."""
        cipher = self.cipher
        if self._pad_key is not None and not self._seeds:
            self._seeds = {axis: self._letters[axis].bound(self._pad_key) for axis in AXES}
        if self._pad_key is None:
            return
        if cipher.name in DEALT_CIPHERS:
            self._give_shared_key(self._pad_key)
        elif isinstance(cipher, Pad):
            cipher.take_streams(*self._streams(self._pad_key, cipher.streams))

    def _streams(self, pad_key: Secret, made: type[Streams]) -> list[Streams]:
        """Pads of rows and of columns."""
        return [made(pad_key, self._seeds[axis], self._start[axis]) for axis in AXES]

    def _give_shared_key(self, pad_key: Secret) -> None:
        """Give a cipher whose key all parties share that key, too."""
        from weft.crypto.ciphers.bfv_by_seal import BfvSecret
        from weft.crypto.ciphers.paillier_and_bfv_ciphers import BfvCipher, PaillierCipher
        from weft.crypto.ciphers.paillier_scheme import PaillierSecret

        cipher = self.cipher
        if isinstance(cipher, BfvCipher | PaillierCipher):
            cipher.take_streams(*self._streams(pad_key, Streams))
        if isinstance(cipher, BfvCipher) and isinstance(self._shared, BfvSecret):
            if len(self._places) != len(AXES):
                raise ProtocolError(
                    f"party {self._keys.name} was not told where its cohorts lie among all slots, "
                    f"as cipher '{cipher.name}' needs; stop this run"
                )
            cipher.take_key(self._shared)
            cipher.take_places(pad_key.derive("weft checks"), *self._places)
        elif isinstance(cipher, PaillierCipher) and isinstance(self._shared, PaillierSecret):
            cipher.take_key(self._shared)
        else:
            raise ProtocolError(f"nobody sent party {self._keys.name} the shared key")

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """The run's keys, for this party's own file, which only its owner can read."""
        if self._pad_key is None:
            return {"key": np.array(self.cipher.key)}
        shared = b"" if self._shared is None else self._shared.to_bytes()
        return {
            "key": np.array(self.cipher.key),
            "pad": np.frombuffer(self._pad_key.reveal(), np.uint8),
            "shared": np.frombuffer(shared, np.uint8),
            **{axis: self._seeds[axis] for axis in AXES},
        }

    def restore(self, state: dict[str, NDArray[Any]], epoch: int) -> None:
        """Go on with the keys of an interrupted run, in a later epoch."""
        self.cipher.key = int(state["key"])
        self.cipher.raise_epoch(epoch)
        if self.cipher.name == "plain":
            return
        for axis in AXES:
            if state[axis].shape != self._letters[axis].seeds.shape:
                raise ProtocolError("the checkpoint's seeds are those of other cohorts")
            self._seeds[axis] = state[axis]
        self._pad_key = Secret(state["pad"].tobytes())
        shared = state["shared"].tobytes()
        if shared:
            self._shared = _shared_kind(self.cipher.name).from_bytes(Secret(shared))
        self._ready()


def _shared_kind(cipher: str) -> type[BfvSecret] | type[PaillierSecret]:
    """What kind of key one party deals to all."""
    from weft.crypto.ciphers.bfv_by_seal import BfvSecret
    from weft.crypto.ciphers.paillier_scheme import PaillierSecret

    kinds: tuple[type[BfvSecret] | type[PaillierSecret], ...] = (BfvSecret, PaillierSecret)
    return dict(zip(DEALT_CIPHERS, kinds, strict=True))[cipher]


def _public_half(shared: BfvSecret | PaillierSecret) -> bytes | None:
    """What the coordinator needs in order to add; none of BFV, whose sums take no key."""
    from weft.crypto.ciphers.paillier_scheme import PaillierSecret

    return shared.public() if isinstance(shared, PaillierSecret) else None


def _spread(first: Ints, start: Ints) -> Ints:
    """Numbers of slots from that of the first slot of every cohort."""
    sizes = np.diff(start)
    numbers: Ints = np.repeat(first - start[:-1], sizes) + np.arange(int(sizes.sum()))
    return numbers
