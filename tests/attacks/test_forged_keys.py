"""Keys of a run that a coordinator makes up, and keys of a party that are stolen later.

Four parties, breast cancer, careful terms; p4 has half of the columns, so that there are two column
cohorts. The coordinator writes the letters with seeds itself, with one seed for both cohorts or
with a key of its own for BFV, or gives one number to two parties. A thief has one party's identity
key and run secret after the run, and all messages. Each succeeds with one function of Weft taken
out, which is said in the test, and is refused with it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from scene import by_rows, table_of, tile_of

from interposed import Middle, interpose
from weft.crypto import party_key_agreement
from weft.crypto import run_participants as participants_module
from weft.crypto.ciphers.bfv_by_seal import BfvSecret
from weft.crypto.ciphers.block_format import read_block, words_of
from weft.crypto.ciphers.cipher_arguments_and_results import Outgoing
from weft.crypto.keys import ephemeral_keys
from weft.crypto.pair_secrets import PairSecrets
from weft.crypto.party_key_pairs import ExchangeKey
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.run_participants import read_participants
from weft.crypto.scalar_masks import Masks
from weft.crypto.secret_bytes import Secret
from weft.crypto.seed_letters import AxisLetters, Cohort, Dealt, read_dealt, read_seeds, write_seeds
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.matching.confirm_holder_lists import Confirmation
from weft.matching.tamper_proof_sample_count import CountCheck
from weft.protocol.message_bytes import Question
from weft.protocol.shared_fields import CARD, PadLinks, Participants, SumRequest
from weft.solvers.run_settings import Settings

NAMES = ("p1", "p2", "p3", "p4")
#: What the coordinator uses for a secret that it does not have.
GUESS = Secret(b"\7" * 32)
SEED = np.arange(16, dtype=np.uint8)
OWN_KEY = BfvSecret.new()


@cache
def tiles():
    table = table_of("breast_cancer", 200)
    held = by_rows(table, 4)
    block = held["p4"][0]
    rows = np.isin(table.ids, block.ids)
    return {**held, "p4": (tile_of(table, rows, slice(0, 15)),)}


class Done(BaseException):
    """All parties have their keys."""


def matched(middle, cipher="pad", keys=None):
    """Matching up to the keys of the run, through a coordinator of one's own."""
    with interpose(middle), suppress(Done):
        how = Preprocessing(confirm_separate_ids=True)
        federation = Federation(tiles(), how, keys=keys, terms=Terms())
        federation.assemble(Settings(lam=0.01, solver="cutting-planes", cipher=cipher))
    return federation


class Forging(PairSecrets):
    """Secrets of pairs as one guesses them who lacks all keys."""

    def __init__(self, party: int) -> None:
        self._party = party

    def shared(self, peer: int) -> Secret:
        return GUESS


class Forger(Middle):
    """Writes the letters of the first party itself: one seed for all cohorts."""

    def __init__(self, dealt: bytes = b"") -> None:
        super().__init__()
        self.told = {}
        self.dealt = Dealt(Secret(bytes(32)), Secret(dealt))

    def down(self, phase, party, message):
        if phase == "match.view":
            self.told[party] = message
        if phase == "match.keys" and party != "p1":
            number = self.told[party]["view.party"]
            letter = Forging(0).lock(number, self.letter(self.told[party]))
            lengths, makers = np.array([len(letter)]), np.array([0])
            forged = {"seeds.content": letter, "seeds.lengths": lengths, "seeds.makers": makers}
            return {**message, **forged}
        return message

    def letter(self, told) -> Secret:
        axes = letters_of(told)
        for axis in axes:
            axis.seeds[:] = SEED
        return write_seeds(self.dealt, [a.write(a.made_by(0).tolist()) for a in axes])

    def _now(self, party):
        return {}


def letters_of(told) -> list[AxisLetters]:
    """What a party was told of its shared cohorts, as the coordinator knows it."""
    found = []
    rows = np.diff(told["view.cohort_start"])
    columns = np.bincount(told["view.column_cohort"])
    for axis, sizes in (("rows", rows), ("columns", columns)):
        numbers = told[f"seeds.{axis}.cohort"].tolist()
        cohorts = [Cohort(n, int(size)) for n, size in zip(numbers, sizes, strict=False)]
        found.append(AxisLetters(axis, cohorts, told[f"seeds.{axis}.maker"]))
    return found


def guessed(monkeypatch) -> None:
    """Take out what the coordinator lacks: secrets of pairs."""
    monkeypatch.setattr(PairSecrets, "shared", lambda self, peer: GUESS)


def unconfirmed(monkeypatch) -> None:
    """Take out that holders confirm to each other who they are, and how much they have."""
    monkeypatch.setattr(Confirmation, "insist", lambda self, told: None)
    monkeypatch.setattr(CountCheck, "insist", lambda self, count, told: None)
    monkeypatch.setattr(party_key_agreement, "company_digest", lambda *_: bytes(32))


def unbound(monkeypatch) -> None:
    """Take out that pads depend on the cohort besides its seed."""
    monkeypatch.setattr(AxisLetters, "bound", lambda self, key: self.seeds)


# ── one seed for two cohorts ──────────────────────────────────────────────────────────────────


def sent(party, values, round_=1000) -> np.ndarray:
    """The words by which a party's feature sums travel."""
    cipher = party._cipher
    cipher.begin(SumRequest(round=round_))
    cohorts = len(party.view.shared_columns) - 1
    # Neighbours would help the coordinator, here.
    masks, cipher.sum_masks = cipher.sum_masks, None
    pads = PadLinks(chain=np.zeros(cohorts, np.uint64))
    packed = cipher.contribute(Outgoing("v", None, values[:, None], pads))
    cipher.sum_masks = masks
    return words_of(read_block(packed, "v"), "v")[:, 0]


def small_multiples(words) -> np.ndarray:
    """δ, up to its sign and a common divisor, from δ·f modulo 2^64; f is odd and unknown."""
    # Loaded where it is needed: every process of the tests collects all of them.
    from sympy import ZZ
    from sympy.polys.matrices import DomainMatrix

    whole = [int(word) for word in words]
    first = min(range(len(whole)), key=lambda j: whole[j] & -whole[j] or 1 << 64)
    shift = (whole[first] & -whole[first]).bit_length() - 1
    modulus = 1 << (64 - shift)
    rest = [(word >> shift) % modulus for word in whole]
    inverse = pow(rest[first], -1, modulus)
    basis = [[word * inverse % modulus for word in rest]]
    basis += [
        [modulus if i == j else 0 for i in range(len(rest))] for j in range(len(rest)) if j != first
    ]
    short = DomainMatrix([[ZZ(x) for x in row] for row in basis], (len(rest),) * 2, ZZ).lll()
    return np.array([int(x) << shift for x in short.to_list()[0]])


def read_differences(federation) -> tuple[np.ndarray, np.ndarray]:
    """Differences of p2's own sums in two cohorts: as read from its words, and as they are."""
    values = np.random.default_rng(5).integers(-(1 << 40), 1 << 40, 30)
    values[0] = values[15] + 1
    words = sent(federation.parties["p2"], values)
    found = small_multiples(words[:15] - words[15:])
    return found, values[:15] - values[15:]


@pytest.mark.release
def test_one_seed_for_two_cohorts_opens_a_partys_sums(record, monkeypatch):
    guessed(monkeypatch)
    unbound(monkeypatch)
    found, true = read_differences(matched(Forger()))
    assert np.array_equal(found, true) or np.array_equal(-found, true)
    record("27", "unguarded", f"{len(true)} of {len(true)} differences of p2's own feature sums")


def test_pads_depend_on_the_cohort_also_where_seeds_are_equal(monkeypatch):
    guessed(monkeypatch)
    found, true = read_differences(matched(Forger()))
    assert not np.array_equal(np.abs(found), np.abs(true))


def test_letters_that_the_maker_did_not_write_are_refused(record):
    with pytest.raises(ProtocolError, match="party p2: a letter was not written by party number 0"):
        matched(Forger())
    record("27", "guarded", "seeds: refused")


def test_a_key_of_the_coordinators_own_is_dealt(record, monkeypatch):
    guessed(monkeypatch)
    federation = matched(Forger(OWN_KEY.to_bytes()), "bfv")
    taken = [p for p in NAMES if federation.parties[p]._keyring._shared.to_bytes() == (
        OWN_KEY.to_bytes())]  # fmt: skip
    assert taken == ["p2", "p3", "p4"]
    record("27", "unguarded", f"its own BFV key at {len(taken)} of 4 parties")


def test_a_key_that_the_first_party_did_not_deal_is_refused(record):
    with pytest.raises(ProtocolError, match="party p2: a letter was not written by party number 0"):
        matched(Forger(OWN_KEY.to_bytes()), "bfv")
    record("27", "guarded", "BFV key: refused")


class Repeated(Middle):
    """Gives p2 letters other than one of each maker, or all of them twice."""

    def __init__(self, how) -> None:
        super().__init__()
        self.how = how

    def down(self, phase, party, message):
        if phase == "match.keys" and party == "p2":
            if self.how == "again":
                phase = next(p for n, p in self.parties[party]._phases.items() if n == "match.keys")
                phase.handle(phase.phase.read_request(dict(message)))
                return message
            content, lengths = message["seeds.content"], message["seeds.lengths"]
            makers = {"twice": [0, 0], "own": [1], "stranger": [9], "none": []}[self.how]
            count = len(makers)
            return {
                **message,
                "seeds.content": content * count,
                "seeds.lengths": np.repeat(lengths, count),
                "seeds.makers": np.array(makers, np.int64),
            }
        return message

    def _now(self, party):
        return {}


@pytest.mark.parametrize("how", ["again", "twice", "own", "stranger", "none"])
def test_every_maker_writes_one_letter_and_once(how):
    words = "has taken the seeds" if how == "again" else "was not sent one letter from each maker"
    with pytest.raises(ProtocolError, match=words):
        matched(Repeated(how))


# ── one number for two parties ────────────────────────────────────────────────────────────────


class Twins(Forger):
    """Tells p3 that it has p2's number, with a list in which that is so."""

    def up(self, phase, party, message, reply):
        if (phase, party) == ("match.keys", "p4"):
            raise Done
        return reply

    def down(self, phase, party, message):
        if phase == "match.view" and party == "p3":
            cards = message["seeds.participants.keys"]
            one, two, three, four = (cards[at : at + CARD] for at in range(0, 4 * CARD, CARD))
            message["seeds.participants.keys"] = one + three + two + four
            message["view.party"] = 1
        return super().down(phase, party, message)


def test_one_number_for_two_parties_gives_equal_pads(record, monkeypatch):
    """Taken out: secrets of pairs, the hash of the list in the run's key, and confirmations."""
    guessed(monkeypatch)
    unconfirmed(monkeypatch)

    class Same:
        def digest(self) -> bytes:
            return bytes(32)

    participants_module._read.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(participants_module, "blake2b", lambda *args, **options: Same())
        federation = matched(Twins())
    participants_module._read.cache_clear()
    zeros = np.zeros(30, np.int64)
    two, three = (sent(federation.parties[p], zeros) for p in ("p2", "p3"))
    assert np.array_equal(two, three)
    record("27", "unguarded", "one number twice: the pads of two parties are equal")


def test_lists_that_differ_give_pads_that_differ(monkeypatch):
    guessed(monkeypatch)
    unconfirmed(monkeypatch)
    federation = matched(Twins())
    zeros = np.zeros(30, np.int64)
    two, three = (sent(federation.parties[p], zeros) for p in ("p2", "p3"))
    assert not np.isin(two, three).any()


class Renumbered(Middle):
    """Tells p3 another number than it has in the list, or another list than the others."""

    def __init__(self, list_too: bool) -> None:
        super().__init__()
        self.list_too = list_too

    def down(self, phase, party, message):
        if phase == "match.view" and party == "p3":
            if self.list_too:
                return Twins.down(Twins(), phase, party, message)
            message["view.party"] = 1
        return message

    def _now(self, party):
        return {}


@pytest.mark.parametrize("list_too", [False, True])
def test_a_number_that_is_anothers_is_refused(record, list_too):
    with pytest.raises(ProtocolError, match="stop this run"):
        matched(Renumbered(list_too))
    record("27", "guarded", "one number twice: refused")


# ── keys that are stolen later ────────────────────────────────────────────────────────────────


def stolen(keys, middle) -> tuple[np.ndarray, np.ndarray] | None:
    """Seeds and masks of p3, by its identity key, its run secret and all messages; None: none."""
    view, run = middle.told["p3"], middle.run_name
    told = Participants(
        keys=view["seeds.participants.keys"], labelled=view["seeds.participants.labelled"]
    )
    listed, number = read_participants(told, run), view["view.party"]
    pairs = PairSecrets(keys.run, ExchangeKey(keys.identity._sealing), listed, number)
    try:
        letter = pairs.unlock(0, middle.boxes["p3"])
    except ProtocolError:
        return None
    dealt, rest = read_dealt(letter)
    axes = letters_of(view)
    assert read_seeds(0, rest, axes)
    both = Secret(keys.run.reveal() + dealt.run_key.reveal())
    seeds = axes[1].bound(both.derive("weft pad", listed.digest))
    return seeds, Masks(pairs, listed, number).sum(QUESTION, listed.everyone, 3)


QUESTION = Question("size", "flags", 0, 7, False, b"")


class Recorder(Middle):
    """Keeps what a thief needs of the messages."""

    def __init__(self) -> None:
        super().__init__()
        self.told, self.boxes, self.run_name = {}, {}, b""

    def down(self, phase, party, message):
        if phase == "match.tokens":
            self.run_name = message["run"]
        if phase == "match.view":
            self.told[party] = dict(message)
        if phase == "match.keys":
            self.boxes[party] = message["seeds.content"]
        return message

    def _now(self, party):
        return {}


@pytest.mark.parametrize("forward", [False, True], ids=["identity keys agree", "as it is"])
def test_keys_that_are_stolen_later_open_nothing(record, monkeypatch, forward):
    """Taken out: a key pair of the run. Then the identity's own opens what was recorded."""
    if not forward:
        monkeypatch.setattr(
            Keyring, "_draw_exchange_key", lambda self: ExchangeKey(self._keys.identity._sealing)
        )
    keys, recorder = ephemeral_keys(NAMES), Recorder()
    federation = matched(recorder, keys=keys)
    found = stolen(keys["p3"], recorder)
    party = federation.parties["p3"]
    if forward:
        assert found is None
        record("28", "guarded", "no letter opens")
        return
    seeds, masks = found
    assert np.array_equal(seeds, party._keyring._seeds["columns"])
    assert np.array_equal(
        masks, party._cipher.masks.sum(QUESTION, party._cipher.masks.everyone(), 3)
    )
    record("28", "unguarded", f"{len(seeds)} of {len(seeds)} seeds of p3's cohorts, and its masks")
