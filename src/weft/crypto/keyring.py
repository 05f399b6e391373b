"""A party's keys of one run: made by the parties, carried by the coordinator in sealed boxes.

The first holder of every shared cohort makes its seed and seals it to the other holders, one box
per pair of parties. Where the cipher has a key that all parties share (BFV, Paillier), the first
party of the federation makes it and seals it to everyone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.ciphers.bfv_scheme import BfvSecret
from weft.crypto.ciphers.block_format import DEALT_CIPHERS, name_cipher
from weft.crypto.ciphers.cipher import Cipher, Plain, check_cipher
from weft.crypto.ciphers.external_cipher_check import check_hiding
from weft.crypto.ciphers.homomorphic_ciphers import BfvCipher, PaillierCipher
from weft.crypto.ciphers.pad import Pad
from weft.crypto.ciphers.paillier_scheme import PaillierSecret
from weft.crypto.identities import Identity, PublicIdentity, Secret
from weft.crypto.key_messages import RunKeys, SeedBoxes, SeedPlan
from weft.crypto.pads.pad_streams import Streams
from weft.crypto.pads.slot_tags import Tags
from weft.crypto.primitives.hash_tree import root_of
from weft.crypto.replay_log import RandomnessLog
from weft.crypto.scalar_masks import Masks
from weft.errors import ConfigError, ProtocolError
from weft.guards.terms import OPEN, Terms
from weft.protocol.message import malformed
from weft.protocol.shared_fields import NONCE, PUBLIC, Boxes

SEED = 16
AXES = ("rows", "columns")


class Keys(Protocol):
    """What a party brings along: its identity, and the secret that the parties share."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> Identity: ...

    @property
    def run(self) -> Secret: ...


@dataclass(frozen=True)
class MadeSeeds:
    """What a party made for the others: boxes, and the public half of a key that all share."""

    boxes: Boxes | None = None
    public: bytes | None = None


class Keyring:
    """The keys of one party in one run.

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
        check_cipher(cipher)
        self._keys = keys
        self._draws = RandomnessLog() if draws is None else draws
        self._terms = terms
        self.cipher = _cipher_of(cipher)
        self.cipher.party_name = keys.name
        self._run_id = self._nonce = b""
        self._pad_key: Secret | None = None
        self._start: dict[str, Ints] = {}
        self._seeds: dict[str, NDArray[np.uint8]] = {}
        self._makers: dict[str, NDArray[np.int32]] = {}
        self._places: list[Ints] = []
        self._shared: PaillierSecret | BfvSecret | None = None

    def __repr__(self) -> str:
        return f"Keyring({self._keys.name}, {self.cipher.name})"

    def __reduce__(self) -> Any:
        raise TypeError("a keyring is not to be pickled")

    @property
    def run_secret(self) -> Secret:
        """What the parties share and the coordinator lacks."""
        return self._keys.run

    @property
    def run_id(self) -> bytes:
        """The coordinator's random name of the run; empty before it is told."""
        return self._run_id

    def token_key(self) -> bytes:
        """The key of this run's tokens."""
        return self._keys.run.derive("weft tokens", self._run_id).reveal()

    def mark(self, run_id: bytes) -> str:
        """By which equal run secrets are known, other in every run."""
        return self._keys.run.fingerprint(f"run {run_id.hex()}")

    def announce(self, run_id: bytes) -> RunKeys:
        """What everybody may know: public keys, and a mark by which equal secrets are known."""
        self._run_id = run_id
        self._nonce = self._draws.random("nonce", NONCE)
        public = self._keys.identity.public.to_bytes()
        return RunKeys(public=public, nonce=self._nonce, mark=self.mark(run_id))

    def mask(self, party: int, *, alone: bool = False) -> None:
        """Be ready for masked scalars, where a run adds up nothing else."""
        self.cipher.party = party
        if self.cipher.name != "plain":
            self.cipher.masks = Masks(self._keys.identity, self._nonce, self._terms, alone=alone)

    def make(
        self, plan: SeedPlan | None, party: int, rows: Ints, columns: Ints, *, alone: bool = False
    ) -> MadeSeeds:
        """Make the seeds that fall to this party, and the boxes for the other holders.

        Parameters
        ----------
        plan
            Which seeds it makes, and for whom; None: under a cipher that needs none.
        rows, columns
            First local slot of each shared cohort, and where the last one ends.
        alone
            Whether the run has no other party.
        """
        self.cipher.party = party
        self.cipher.key = int(self._keys.run.fingerprint(f"key {self._run_id.hex()}")[:8], 16)
        if self.cipher.name == "plain":
            return MadeSeeds()
        if plan is None:
            raise ProtocolError(
                f"party {self._keys.name} was not told which seeds it makes, as cipher "
                f"'{self.cipher.name}' needs; stop this run"
            )
        self.cipher.masks = Masks(self._keys.identity, self._nonce, self._terms, alone=alone)
        # With everybody's nonce in it, its own too: no run that a coordinator repeats, with seeds
        # of its own or of another run, brings pads back.
        root = root_of(self._nonce, party, plan.way)
        self._pad_key = self._keys.run.derive("weft pad", self._run_id + root)
        self._draw_seeds(plan, party, {"rows": rows, "columns": columns})
        content, public = b"", None
        if plan.deal and self.cipher.name in _DEALT:
            kind = _DEALT[self.cipher.name]
            content = self._draws.take("shared key", lambda: kind.new().to_bytes())
            self._shared = kind.from_bytes(Secret(content))
            if isinstance(self._shared, PaillierSecret):
                public = self._shared.public()
        return MadeSeeds(Boxes.of(self._boxes(plan, content)), public)

    def facts_key(self) -> Secret | None:
        """The key under which holders confirm facts of this run; None under cipher plain."""
        return None if self._pad_key is None else self._pad_key.derive("weft facts")

    def _draw_seeds(self, plan: SeedPlan, party: int, starts: dict[str, Ints]) -> None:
        """Seeds of the cohorts whose maker this party is; the others' come in boxes."""
        self._places = []
        for axis, start in starts.items():
            told = plan.rows if axis == "rows" else plan.columns
            if len(told.maker) != len(start) - 1:
                raise malformed(f"seeds.{axis}.maker", "does not name one maker per shared cohort")
            self._makers[axis], self._start[axis] = told.maker, start
            self._seeds[axis] = np.zeros((len(start) - 1, SEED), np.uint8)
            mine = np.flatnonzero(told.maker == party)
            random = self._draws.random(f"seeds of {axis}", SEED * len(mine))
            self._seeds[axis][mine] = np.frombuffer(random, np.uint8).reshape(-1, SEED)
            if told.place is not None:
                if len(told.place) != len(start) - 1:
                    raise malformed(f"seeds.{axis}.place", "does not tell one place per cohort")
                self._places.append(_spread(told.place, start))

    def _boxes(self, plan: SeedPlan, content: bytes) -> list[bytes]:
        """One box per party to which this one gives something."""
        cards, axes = plan.cards(), (("rows", plan.rows), ("columns", plan.columns))
        if len(cards) != len(plan.to):
            raise malformed("seeds.keys", "does not hold the keys of every receiver")
        for axis, told in axes:
            if len(told.start) != len(cards) + 1:
                raise malformed(f"seeds.{axis}.start", "does not say what every receiver is given")
        boxes = []
        for number, card in enumerate(cards):
            parts = [content]
            for axis, told in axes:
                begin, end = told.start[number : number + 2].tolist()
                parts.append(self._seeds[axis][told.given[begin:end]].tobytes())
            public = PublicIdentity.from_bytes(card[:PUBLIC])
            # For this run of the other alone: a box from another run would bring its pads back.
            boxes.append(public.seal(b"".join([card[PUBLIC:], *parts])))
        return boxes

    def take(self, boxes: SeedBoxes | None) -> None:
        """Open the boxes of the other makers; then the cipher is ready."""
        if self.cipher.name == "plain":
            return
        if boxes is None or not self._makers:
            raise ProtocolError(
                f"party {self._keys.name} was sent no seeds, or before it was told who makes them"
            )
        sealed = boxes.cut()
        if len(sealed) != len(boxes.makers):
            raise malformed("seeds.makers", "does not name one maker per box")
        for maker, box in zip(boxes.makers.tolist(), sealed, strict=True):
            self._unpack(maker, self._keys.identity.open(box))
        for axis in AXES:
            if not self._seeds[axis].any(axis=1).all():
                raise ProtocolError(f"nobody sent party {self._keys.name} the seed of a cohort")
        self._ready()

    def _unpack(self, maker: int, opened: Secret) -> None:
        nonce, content = opened.reveal()[:NONCE], opened.reveal()[NONCE:]
        if nonce != self._nonce:
            raise ProtocolError(
                f"the box that party number {maker} sealed to {self._keys.name} is not of this run"
            )
        chosen = {axis: np.flatnonzero(self._makers[axis] == maker) for axis in AXES}
        expected = SEED * sum(len(c) for c in chosen.values())
        extra = len(content) - expected
        if extra < 0 or (extra and (maker != 0 or self.cipher.name not in _DEALT)):
            raise ProtocolError(
                f"the box that party number {maker} sealed to {self._keys.name} has "
                f"{len(content)} bytes, not {expected}"
            )
        if extra:
            kind = _DEALT[self.cipher.name]
            self._shared = kind.from_bytes(Secret(content[:extra]))
        at = extra
        for axis in AXES:
            end = at + SEED * len(chosen[axis])
            seeds = np.frombuffer(content[at:end], np.uint8)
            self._seeds[axis][chosen[axis]] = seeds.reshape(-1, SEED)
            at = end

    def _ready(self) -> None:
        """Give the cipher what it needs."""
        cipher = self.cipher
        if self._pad_key is None or not isinstance(cipher, Pad | BfvCipher):
            return
        made = cipher.streams if isinstance(cipher, Pad) else Streams
        rows, columns = (made(self._pad_key, self._seeds[a], self._start[a]) for a in AXES)
        cipher.take_streams(rows, columns)
        if isinstance(cipher, Pad):
            cipher.take_tags(*(Tags(self._pad_key, self._seeds[a], self._start[a]) for a in AXES))
        if isinstance(cipher, BfvCipher) and isinstance(self._shared, BfvSecret):
            if len(self._places) != len(AXES):
                raise ProtocolError(
                    f"party {self._keys.name} was not told where its cohorts lie among all slots, "
                    f"as cipher '{cipher.name}' needs; stop this run"
                )
            cipher.take_key(self._shared)
            cipher.take_places(self._pad_key.derive("weft checks"), *self._places)
        elif isinstance(cipher, PaillierCipher) and isinstance(self._shared, PaillierSecret):
            cipher.take_key(self._shared)
        elif cipher.name in _DEALT:
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
            if state[axis].shape != self._seeds[axis].shape:
                raise ProtocolError("the checkpoint's seeds are those of other cohorts")
            self._seeds[axis] = state[axis]
        self._pad_key = Secret(state["pad"].tobytes())
        shared = state["shared"].tobytes()
        if shared:
            kind = _DEALT[self.cipher.name]
            self._shared = kind.from_bytes(Secret(shared))
        self._ready()


_KINDS: dict[str, type[Cipher]] = {
    kind.name: kind for kind in (Plain, Pad, BfvCipher, PaillierCipher)
}
#: Keys that one party deals to all, by cipher.
_DEALT: dict[str, type[BfvSecret] | type[PaillierSecret]] = dict(
    zip(DEALT_CIPHERS, (BfvSecret, PaillierSecret), strict=True)
)


def _cipher_of(name: str) -> Cipher:
    return _KINDS[name]()


def register_cipher(kind: type[Pad], code: int) -> None:
    """Let settings and terms name a cipher of your own: padded words, with pads of another make.

    No terms allow it by themselves: every party must name it in its ``ciphers``, in its policy, in
    the signed roster or in ``[privacy]``, and must have registered it, from the same code. A
    coordinator on another machine has no party's half and calls
    :func:`weft.crypto.ciphers.block_format.name_cipher` instead.

    Parameters
    ----------
    kind
        A subclass of :class:`Pad` with a ``name`` and ``streams`` of its own.
    code
        What stands for it in headers of blocks, 128 to 255.

    Raises
    ------
    ConfigError
        If name or code are taken, or it makes no pads of its own, hides nothing, uses pads again
        or does not open what it hid.
    """
    if not (isinstance(kind, type) and issubclass(kind, Pad)):
        raise ConfigError(f"{kind!r} is no cipher of padded words; register a subclass of Pad")
    if kind.streams is Streams or not issubclass(kind.streams, Streams):
        raise ConfigError(
            f"cipher '{kind.name}' makes the same pads as 'pad'; give it streams of its own, a "
            "subclass of Streams"
        )
    check_hiding(kind)
    name_cipher(kind.name, code)
    _KINDS[kind.name] = kind


def _spread(first: Ints, start: Ints) -> Ints:
    """Numbers of slots from that of the first slot of every cohort."""
    sizes = np.diff(start)
    numbers: Ints = np.repeat(first - start[:-1], sizes) + np.arange(int(sizes.sum()))
    return numbers
