"""No secret reaches the coordinator, a log, a printed object or the text of an error.

The test knows every secret of a run, and looks for eight bytes of any of them in all that the
coordinator has, sends and gets. The same search finds them at the parties, so that it does look.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from base64 import b64encode
from types import FunctionType, MethodType, ModuleType

import gmpy2
import numpy as np
import pytest
from typer.testing import CliRunner

from interposed import HIDING, Middle, cut, interpose, quick, train
from weft.cli import command_line
from weft.crypto import coordinator_adder as adder_module
from weft.crypto.ciphers.bfv_by_seal import BfvSecret, _unpack
from weft.crypto.ciphers.paillier_scheme import PaillierSecret
from weft.crypto.keys import load_all
from weft.crypto.pads import pad_ids_in_totals as chain_module
from weft.crypto.pads.pad_streams import Streams
from weft.crypto.party_key_pairs import Identity
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.scalar_masks import Masks
from weft.crypto.secret_bytes import Secret
from weft.errors import WeftError
from weft.protocol import LocalChannel
from weft.solvers.hyfdca import coordinator_run_state as run_module
from weft.solvers.solver_interfaces_and_results import Checkpointing
from weft.sums import coordinator_pad_bookkeeping as pads_module
from weft.sums import coordinator_totals as totals_module
from weft.sums import latest_slot_values_and_proposals as boards_module
from weft.sums import shared_slots_by_party as slots_module

WINDOW = 8


# ── all that an object holds ──────────────────────────────────────────────────────────────────


def contents(*roots):
    """Every byte string, number and text that can be reached, functions and classes aside."""
    seen, waiting = set(), list(roots)
    while waiting:
        this = waiting.pop()
        if id(this) in seen or isinstance(this, type | ModuleType | FunctionType | LocalChannel):
            continue
        seen.add(id(this))
        if isinstance(this, MethodType):
            waiting.append(this.__self__)
        elif isinstance(this, bytes | bytearray | memoryview):
            yield bytes(this)
        elif isinstance(this, str):
            yield this.encode("utf-8", "surrogatepass")
        elif isinstance(this, np.ndarray):
            yield this.tobytes() if this.dtype != object else b""
        elif isinstance(this, int | gmpy2.mpz):
            number = abs(int(this))
            size = number.bit_length() // 8 + 1
            yield number.to_bytes(size, "little")
            yield number.to_bytes(size, "big")
        elif isinstance(this, dict):
            waiting += [*this.keys(), *this.values()]
        elif isinstance(this, list | tuple | set | frozenset):
            waiting += this
        else:
            waiting += getattr(this, "__dict__", {}).values()
            for kind in type(this).__mro__:
                for name in getattr(kind, "__slots__", ()):
                    if hasattr(this, name):
                        waiting.append(getattr(this, name))
        # Kept alive, so that no other object gets its number.
        seen.add(id(this))


def windows(content, step):
    """Windows of eight bytes as numbers, those of one repeated byte left out."""
    if len(content) < WINDOW:
        return np.zeros(0, np.uint64)
    every = np.lib.stride_tricks.sliding_window_view(np.frombuffer(content, np.uint8), WINDOW)
    found = np.ascontiguousarray(every[::step])
    changes = np.diff(np.sort(found, axis=1), axis=1) != 0
    return np.unique(found[changes.sum(axis=1) > 1].view("<u8"))


def found_in(blob, secrets):
    """Names of the secrets of which eight bytes occur somewhere in a byte string."""
    parts = [windows(s, 1 if len(s) <= 128 else WINDOW) for s in secrets.values()]
    wanted = np.concatenate(parts)
    # Few words of a blob end in the same 24 bits as one of those.
    low = np.uint64((1 << 24) - 1)
    known = np.zeros(1 << 24, bool)
    known[wanted & low] = True
    hits = []
    for offset in range(WINDOW):
        words = np.frombuffer(blob, np.uint64, (len(blob) - offset) // WINDOW, offset)
        hits.append(words[known[words & low]])
    found = np.isin(wanted, np.concatenate(hits))
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    names = list(secrets)
    return {names[i] for i in np.unique(owner[found]).tolist()}


def secrets_of(party):
    """Every secret of a party by name, found by what it is rather than where."""
    keyring = party._keyring
    identity = keyring._keys.identity
    found = {
        "run secret": keyring._keys.run.reveal(),
        "token key": keyring.bound_secret("weft tokens").reveal(),
        "pad key": keyring._pad_key.reveal(),
        "signing key": identity.private().reveal()[:32],
        "sealing key": identity.private().reveal()[32:],
    }
    for axis, seeds in keyring._seeds.items():
        for number, seed in enumerate(seeds):
            found[f"seed {number} of {axis}"] = seed.tobytes()
    for number, pair in enumerate(keyring._pairs._agreed.values()):
        found[f"pair {number}"] = pair.reveal()
    found["exchange key"] = keyring._exchange._private.reveal()
    if isinstance(keyring._shared, BfvSecret):
        found["BFV key"] = keyring._shared.to_bytes()
        found["BFV key as words"] = _unpack(found["BFV key"][:46080]).tobytes()
    if isinstance(keyring._shared, PaillierSecret):
        key = keyring._shared.to_bytes()
        half = (len(key) - 16) // 2
        found["Paillier's p"], found["Paillier's q"] = key[:half], key[half : 2 * half]
    return found


class Keep(Middle):
    """Keeps every message and reply."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def down(self, phase, party, message):
        self.messages.append((phase, party, message))
        return message

    def up(self, phase, party, message, reply):
        self.messages.append((phase, party, reply))
        return reply


@pytest.fixture(scope="module", params=HIDING)
def finished(request, tmp_path_factory):
    """A run that is over, with all that both sides have."""
    folder = tmp_path_factory.mktemp("coordinator")
    parties = tmp_path_factory.mktemp("parties")
    keep = Keep()
    settings = quick(cipher=request.param, local="safe", participation=0.75, iterations=2)
    with interpose(keep):
        trained = train(
            cut("hybrid 2×2"), settings, store=parties, checkpointing=Checkpointing(folder, 2)
        )
    keep.trained, keep.folder, keep.store = trained, folder, parties
    keep.cipher = request.param
    return keep


@pytest.fixture(scope="module")
def secrets(finished):
    return {f"{name}: {w}": s for name, p in finished.parties.items() for w, s in
            secrets_of(p).items()}  # fmt: skip


def test_there_are_secrets_to_look_for(finished, secrets):
    kinds = {name.partition(": ")[2].split()[0] for name in secrets}
    assert kinds >= {"run", "token", "pad", "signing", "sealing", "seed", "pair"}
    assert ("BFV" in kinds) == (finished.cipher == "bfv")
    assert ("Paillier's" in kinds) == (finished.cipher == "paillier")
    assert all(len(windows(secret, 1)) for secret in secrets.values())


def test_the_search_finds_them_at_the_parties(finished):
    for party in finished.parties.values():
        held = secrets_of(party)
        # SEAL shows no coefficients; tokens' keys are derived where they are used.
        held = {n: s for n, s in held.items() if n != "token key" and not n.startswith("BFV")}
        assert found_in(b"|".join(contents(party)), held) == set(held)


def test_the_coordinator_holds_none_of_them(finished, secrets):
    run, trained = finished.run, finished.trained
    assert isinstance(run, run_module.Run)
    state = {name: value for name, value in vars(run).items() if name != "channel"}
    blob = b"|".join(contents(state, trained.result, trained.holdings, run.channel.meter))
    assert len(blob) > 5_000
    assert b"r1c1" in blob, "what is public is there to be found"
    assert found_in(blob, secrets) == set()


def test_no_message_carries_any_of_them(finished, secrets):
    blob = b"|".join(contents(finished.messages))
    assert len(blob) > 10_000
    assert found_in(blob, secrets) == set()


def test_the_coordinators_checkpoint_holds_none_of_them(finished, secrets):
    paths = sorted(finished.folder.iterdir())
    assert "coordinator.npz" in [path.name for path in paths]
    blob = b"|".join(path.read_bytes() for path in paths)
    assert found_in(blob, secrets) == set()


def test_the_parties_checkpoints_hold_what_they_need_to_go_on(finished):
    """And are found where they should be: the other half of the test above."""
    for name, party in finished.parties.items():
        blob = b"|".join(
            p.read_bytes() for p in finished.store.iterdir() if p.name.startswith(name)
        )
        found = found_in(blob, secrets_of(party))
        assert {"pad key", "seed 0 of rows", "seed 0 of columns"} <= found
        assert not {"run secret", "signing key", "sealing key", "token key"} & found


def test_secrets_of_parties_that_hold_different_cohorts_differ(finished):
    seeds = {
        (axis, cohort): {
            party._keyring._seeds[axis][place].tobytes()
            for party in finished.parties.values()
            for place, held in enumerate(cohorts_of(party, axis))
            if held == cohort
        }
        for axis in ("rows", "columns")
        for cohort in (0, 1)
    }
    assert all(len(found) == 1 for found in seeds.values()), "holders share their cohort's seed"
    assert len(set.union(*seeds.values())) == 4


def cohorts_of(party, axis):
    """Global numbers of a party's shared cohorts; here there are two along each axis."""
    row, column = int(party.name[1]) - 1, int(party.name[3]) - 1
    return [row if axis == "rows" else column]


# ── what the coordinator's classes take ───────────────────────────────────────────────────────

SECRETS = (Secret, Identity, Keyring, Streams, Masks, BfvSecret, PaillierSecret)
COORDINATORS = (
    adder_module,
    chain_module,
    totals_module,
    boards_module,
    pads_module,
    slots_module,
    run_module,
)


@pytest.mark.parametrize("module", COORDINATORS, ids=lambda module: module.__name__)
def test_the_coordinators_modules_know_no_secret(module):
    assert not [name for name, value in vars(module).items() if any(value is s for s in SECRETS)]
    for _, kind in inspect.getmembers(module, inspect.isclass):
        if kind.__module__ != module.__name__:
            continue
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            signature = str(inspect.signature(method))
            for secret in SECRETS:
                assert secret.__name__ not in signature, (kind, name)


# ── objects that do not show or copy themselves ───────────────────────────────────────────────


def holders(party):
    """Objects of a party that hold secrets."""
    keyring, cipher = party._keyring, party._cipher
    found = [party, keyring, cipher, cipher.masks, keyring._pad_key, keyring._keys.identity]
    found += {id(s): s for s in cipher._streams.values()}.values()
    return found if keyring._shared is None else [*found, keyring._shared]


def test_what_holds_secrets_is_neither_pickled_nor_copied(finished):
    party = next(iter(finished.parties.values()))
    for holder in holders(party):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError):
                pickle.dumps(holder, protocol)
        with pytest.raises(TypeError):
            copy.deepcopy(holder)


def shown(secret):
    """How eight bytes of a secret would look in a text."""
    step = 1 if len(secret) <= 128 else 64
    for i in range(0, len(secret) - WINDOW + 1, step):
        part = secret[i : i + WINDOW]
        if len(set(part)) <= 2:
            continue
        yield part.hex()
        yield repr(part)[2:-1]
        yield str(int.from_bytes(part, "little"))
        yield str(list(part))[1:-1]
    yield b64encode(secret).decode()[:16]


def shows(text, secret):
    return any(part in text for part in shown(secret))


def test_nothing_that_holds_secrets_prints_them(finished, secrets):
    text = ""
    for party in finished.parties.values():
        for holder in holders(party):
            text += f"{holder!r} {holder} {holder:}\n" if holder is not party else f"{holder!r}\n"
    assert "Keyring(r1c1" in text
    for name, secret in secrets.items():
        assert not shows(text, secret), name
    assert shows(repr(secrets), next(iter(secrets.values()))), "the search does find what is shown"


# ── errors ────────────────────────────────────────────────────────────────────────────────────


class Provoke(Middle):
    """Changes one message; keeps the error that a party raises over it."""

    def __init__(self, phase, change):
        super().__init__()
        self.phase = phase
        self.change = change
        # The first party makes seeds, the last one gets some.
        self.party = "r1c1" if phase == "match.view" else "r2c2"
        self.done = False

    def down(self, phase, party, message):
        if (phase, party) != (self.phase, self.party) or self.done:
            return message
        self.done = True
        return self.change(message)


def flip_a_box(message):
    box = bytearray(message["seeds.content"])
    box[-1] ^= 1
    return {**message, "seeds.content": bytes(box)}


def change_a_total(message):
    return {**message, "v": message["v"][:-1] + bytes([message["v"][-1] ^ 1])}


def change_a_card(message):
    """A weak exchange key in the place of the last party's."""
    listed = message["seeds.participants.keys"]
    return {**message, "seeds.participants.keys": listed[:-96] + bytes(32) + listed[-64:]}


CHANGES = {
    "a changed total": ("hyfdca.weights", change_a_total),
    "a total cut off": ("hyfdca.weights", lambda m: {**m, "v": m["v"][:-1]}),
    "a request twice": ("hyfdca.weights", lambda m: {**m, "round": 1}),
    "a changed box": ("match.keys", flip_a_box),
    "a box of another": ("match.keys", lambda m: {**m, "seeds.makers": np.array([0, 3, 2])}),
    "no boxes": ("match.keys", lambda m: {**m, "seeds.content": b"",
                                          "seeds.lengths": m["seeds.lengths"][:0],
                                          "seeds.makers": m["seeds.makers"][:0]}),
    "weak public keys": ("match.view", change_a_card),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_no_traceback_shows_a_secret_not_even_with_local_variables(name):
    provoke = Provoke(*CHANGES[name])
    with interpose(provoke), pytest.raises(WeftError) as caught:
        # The second iteration, when there is something to check.
        train(cut("hybrid 2×2"), quick(iterations=2, local="practical", cipher="pad"))
    assert provoke.done
    errors = [error for _, _, error, _ in provoke.refused] + [caught.value]
    assert len(errors) > 1
    text = ""
    for error in errors:
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        text += "".join(report.format())
    assert provoke.party in text
    # Frames come again and again, and with them their variables.
    text = "\n".join(dict.fromkeys(text.splitlines()))
    for party in provoke.parties.values():
        if party._keyring._pad_key is None:
            continue
        for secret_name, secret in secrets_of(party).items():
            assert not shows(text, secret), secret_name


@pytest.mark.parametrize("kind", [BfvSecret, PaillierSecret])
def test_no_traceback_over_a_damaged_key_shows_it(kind):
    made = kind.new() if kind is BfvSecret else kind.new(512)
    key = made.to_bytes()
    with pytest.raises(WeftError) as caught:
        kind.from_bytes(Secret(key[:-1] + bytes([key[-1] ^ 1])))
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    # The first frame is this one.
    report.stack = traceback.StackSummary.from_list(report.stack[1:])
    assert not shows("".join(report.format()), key[:64])


# ── the command line ──────────────────────────────────────────────────────────────────────────


def test_the_command_line_shows_no_secret(tmp_path):
    folder = tmp_path / "keys"
    names = ["north", "south"]
    runner, (app, _) = CliRunner(), command_line()
    options = [part for name in names for part in ("--party", name)]
    text = ""
    for command in (
        ["keys", "new", str(folder), *options],
        ["keys", "show", str(folder)],
        ["keys", "show", str(folder), "--json"],
        ["keys", "new", str(folder), "--renew-run"],
        ["keys", "new", str(folder), *options],
    ):
        text += runner.invoke(app, command).output
    assert "north" in text
    for keys in load_all(folder, names).values():
        for secret in (keys.run, keys.identity.private()):
            assert not shows(text, secret.reveal())
        text += repr(keys)
        assert not shows(text, keys.run.reveal())
