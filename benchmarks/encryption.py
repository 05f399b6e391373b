"""What encryption costs: values per second, seconds of a run, and the share of an iteration.

Three parts, each of which ``--only`` selects by its name, or a part of it by more of a row's name
(``--only "settings, MNIST 500"``):

``values``    encrypt, add and decrypt, beside SecretFlow's HEU (Okamoto-Uchiyama, 2048 bits)
``settings``  the 27 settings of the HyFDCA paper: seconds measured under ``pad`` against as many
              operations of a cipher that works value by value, at the paper's milliseconds
``share``     how much of an iteration's wall time encryption takes

Needs the data directory for the last two (set WEFT_DATA), and for the peer
``pip install sf-heu==0.5.2b0``, which is no dependency of Weft.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import geometric_mean
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

from harness import Report
from harness.matched import MatchedParties
from harness.splits import DataSets
from weft.crypto.ciphers.cipher_arguments_and_results import Incoming, Outgoing
from weft.crypto.ciphers.party_cipher import Cipher, Plain
from weft.data import Split, Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.protocol.metering import EncryptionCost
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.shared_slots_by_party import Layout
from weft.sums.table_scaling_and_certificate_messages import FeatureSumReply, MomentsRequest

Integers = NDArray[np.int64]

# ── values ────────────────────────────────────────────────────────────────────────────────────

#: How many values the bars are about.
COUNT = 4096
NO_PEER = "HEU is not installed: `pip install sf-heu==0.5.2b0` puts it beside these figures."


class Laps:
    """The least time of the processor that each step took over several rounds.

    HEU starts threads of its own, and on a machine that others use too the wall clock favours
    short steps: seconds of the processor, of all threads together, are the same for both.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        start = process_time()
        yield
        spent = process_time() - start
        self.seconds[step] = min(spent, self.seconds.get(step, spent))


@dataclass(frozen=True)
class Figures:
    """What ``count`` values took: seconds per step, and bytes in the longer direction."""

    count: int
    encrypt: float
    add: float
    decrypt: float
    bytes: int

    @classmethod
    def of(cls, count: int, laps: Laps, size: int) -> Figures:
        seconds = laps.seconds
        return cls(count, seconds["encrypt"], seconds["add"], seconds["decrypt"], size)

    @property
    def both(self) -> float:
        """Seconds to encrypt and decrypt a value."""
        return (self.encrypt + self.decrypt) / self.count


def some_values(count: int) -> Integers:
    """As large as fixed point lets values become."""
    return np.random.default_rng(0).integers(-(2**47), 2**47, (count, 1))


def measure(cipher: str, count: int, rounds: int) -> Figures:
    """Feature sums of two parties, to the coordinator's totals and back.

    The ciphers, their headers, chains and bytes are those of a run. Every contribution but the
    first puts a new pad on and takes the one before off.
    """
    names = np.array([f"x{j}" for j in range(count)], dtype=object)
    tiles = {
        party: [Tile.make([party], names, np.ones((1, count)), labels=[label])]
        for label, party in enumerate(("a", "b"))
    }
    made = MatchedParties(tiles, cipher, separate=True)
    adder, ciphers, holdings = made.adder, made.ciphers, made.holdings
    totals = IncrementTotals("v", Layout(holdings.columns, holdings.parties), 1, adder)
    values, laps, size = some_values(count), Laps(), 0
    last = 0
    for number in range(rounds):
        # To and fro, so that the total stays within its range.
        part, expected = (-values, 0 * values) if number % 2 else (values, 2 * values)
        asked = requests(adder.advance(), ciphers)
        totals.invite(asked)
        replies: dict[str, FeatureSumReply] = {}
        for name, mine in ciphers.items():
            mine.begin(asked[name])
            with laps("encrypt"):
                sent = mine.contribute(Outgoing("v", None, part, asked[name].v_pads, last=last))
            replies[name] = FeatureSumReply(v=sent)
            size = max(size, len(sent))
        last = max(mine.request for mine in ciphers.values())
        with laps("add"):
            totals.add(replies)
        asked = requests(adder.advance(), ciphers)
        for name, block in totals.blocks(ciphers).items():
            ciphers[name].begin(asked[name])
            with laps("decrypt"):
                opened = ciphers[name].reveal(Incoming("v", None, count, 1, block))
            assert np.array_equal(opened, expected)
            size = max(size, len(block))
    # Two parties' values were added at once.
    laps.seconds["add"] /= len(ciphers)
    return Figures.of(count, laps, size)


def requests(number: int, parties: Iterable[str]) -> dict[str, MomentsRequest]:
    return {party: MomentsRequest(round=number) for party in parties}


def heu(count: int, together: int = 1) -> Figures:
    """The bare operations, without encoding and bytes, which favours the peer.

    ``together`` is 1, or 2 for HEU's encoder of two values in one ciphertext.
    """
    from heu import numpy as hnp  # type: ignore[import-not-found]
    from heu import phe

    kit = hnp.setup(phe.SchemaType.OU, 2048)
    encoder = kit.integer_encoder(scale=1) if together == 1 else kit.batch_integer_encoder()
    values = some_values(count).reshape(-1, together)
    plain = kit.array(values, encoder)
    encryptor, evaluator, decryptor = kit.encryptor(), kit.evaluator(), kit.decryptor()
    laps, size = Laps(), 0
    for _ in range(5):
        with laps("encrypt"):
            sent = encryptor.encrypt(plain)
        with laps("add"):
            total = evaluator.add(sent, sent)
        with laps("decrypt"):
            opened = decryptor.decrypt(total)
        assert np.array_equal(opened.to_numpy(encoder), 2 * values)
        size = len(total.serialize())
    return Figures.of(count, laps, size)


def values_part(report: Report) -> None:
    cases: tuple[tuple[str, int, int, float | None, float | None], ...] = (
        # cipher, values, rounds, ratio to HEU to reach, bytes a value to keep to
        ("pad", 1, 1000, None, None),
        ("pad", 64, 1000, None, None),
        ("pad", COUNT, 400, 1000, 20),
        ("pad", 1_000_000, 10, None, None),
        ("bfv", COUNT, 100, 50, 30),
        ("paillier", 64, 4, None, None),
    )
    wanted = [case for case in cases if report.wants(f"values, {case[0]}, {case[1]:,}: ")]
    if not wanted:
        return
    peers: dict[str, Figures] = {}
    if find_spec("heu") is None:
        print(NO_PEER)
    else:
        peers = {"HEU": heu(COUNT), "HEU in pairs": heu(COUNT, 2)}
        for peer, figures in peers.items():
            add_values(report, f"values, {peer}, {COUNT:,}", figures, None, None)
    for cipher, count, rounds, ratio, size in wanted:
        name = f"values, {cipher}, {count:,}"
        figures = measure(cipher, *((min(count, 8), 2) if report.smoke else (count, rounds)))
        add_values(report, name, figures, peers.get("HEU"), size)
        if ratio is None:
            continue
        for peer, theirs in peers.items():
            report.add(
                f"{name}: encrypt + decrypt over {peer}",
                theirs.both / figures.both,
                "×",
                bar=ratio if peer == "HEU" else None,
                better="higher",
            )


def add_values(
    report: Report, name: str, figures: Figures, peer: Figures | None, size: float | None
) -> None:
    for step in ("encrypt", "add", "decrypt"):
        anchor = None if peer is None else peer.count / getattr(peer, step)
        speed = figures.count / getattr(figures, step)
        report.add(f"{name}: {step}", speed, "values/s", anchor=anchor, better="higher")
    bytes_there = None if peer is None else peer.bytes / peer.count
    bytes_here = figures.bytes / figures.count
    report.add(f"{name}: bytes", bytes_here, "bytes/value", anchor=bytes_there, bar=size)


# ── settings ──────────────────────────────────────────────────────────────────────────────────

#: Seconds of one operation of Paillier (section 3 of the paper, from Sidorov, Wei and Ng 2022).
ENCRYPTION, DECRYPTION, ADDITION = 18.882e-3, 18.865e-3, 0.054e-3
MEASURED = 10
HEADER = (
    f"practical, cipher pad, min_batch = 1; after the first certificate {MEASURED} iterations (of "
    "the largest 5) without another. By value: "
    f"{ENCRYPTION * 1e3:g} / {DECRYPTION * 1e3:g} / {ADDITION * 1e3:g} ms per encryption / "
    "decryption / addition."
)

#: Participation → IIC (Tables 2 to 4), seconds of encryption in the paper (Tables 6 to 8).
Fractions = Mapping[float, tuple[float, float]]


@dataclass(frozen=True)
class Case:
    """A data set cut in one way, and the settings that the paper tried on it."""

    name: str
    cut: Callable[[DataSets], Split]
    lam: float
    fractions: Fractions
    measured: int = MEASURED


CASES = (
    Case("MNIST 5", lambda data: data.mnist(5), 1e-3,
         {0.1: (0.0001876, 0.1107), 0.5: (0.001564, 3.164), 0.9: (0.002816, 11.32)}),
    Case("MNIST 500", lambda data: data.mnist(500), 1e-3,
         {0.1: (0.03827, 7.827), 0.5: (0.002252, 13.67), 0.9: (0.08337, 431.0)}),
    Case("MNIST 5000", lambda data: data.mnist(5000), 1e-3,
         {0.1: (0.002673, 61.69), 0.5: (0.0003154, 1136), 0.9: (0.02195, 3903)}, 5),
    Case("newsgroups 3×3", lambda data: data.dealt("newsgroups", 3), 1e-5,
         {0.1: (0.01448, 0.3916), 0.5: (0.01187, 2.180), 0.9: (0.01122, 3.444)}),
    Case("newsgroups 5×5", lambda data: data.dealt("newsgroups", 5), 1e-5,
         {0.1: (0.03072, 1.095), 0.5: (0.0286, 4.360), 0.9: (0.03072, 7.671)}),
    Case("newsgroups 12×12", lambda data: data.dealt("newsgroups", 12), 1e-5,
         {0.1: (0.08568, 2.360), 0.5: (0.08504, 10.81), 0.9: (0.07564, 17.99)}, 5),
    Case("Covertype 3×3", lambda data: data.dealt("covtype", 3), 5e-5,
         {0.1: (0.0001326, 0.07758), 0.5: (0.0002643, 1.149), 0.9: (0.00005533, 0.4694)}),
    Case("Covertype 5×5", lambda data: data.dealt("covtype", 5), 5e-5,
         {0.1: (0.00007376, 0.09462), 0.5: (0.0008319, 2.920), 0.9: (0.0001326, 1.001)}),
    Case("Covertype 12×12", lambda data: data.dealt("covtype", 12), 5e-5,
         {0.1: (0.0008319, 0.5975), 0.5: (0.0007434, 2.771), 0.9: (0.0007434, 5.453)}),
)  # fmt: skip


class _Enough(Exception):
    """All iterations are measured; a last certificate need not be waited for."""


@dataclass(frozen=True)
class Spell:
    """What some iterations of a run took, each on average."""

    wall: float
    slowest: EncryptionCost
    parties: EncryptionCost
    coordinator: EncryptionCost
    iterations: int

    @property
    def slowest_seconds(self) -> tuple[float, float]:
        """Of the party that spent the most: measured, and value by value."""
        return self.slowest.seconds / self.iterations, at_papers_pace(self.slowest, self.iterations)

    @property
    def seconds(self) -> tuple[float, float]:
        """Of everybody: measured, and value by value."""
        everybody = self.parties + self.coordinator
        return everybody.seconds / self.iterations, at_papers_pace(everybody, self.iterations)


def at_papers_pace(cost: EncryptionCost, iterations: int) -> float:
    """Seconds an iteration if every value took the paper's milliseconds."""
    seconds = cost.encrypted * ENCRYPTION + cost.decrypted * DECRYPTION + cost.added * ADDITION
    return seconds / iterations


def watch(split: Split, settings: Settings, measured: int, warm_up: int | None = None) -> Spell:
    """Train, look at the clocks twice, and stop: setting up and closing are not in between.

    Parameters
    ----------
    measured
        Iterations between the looks.
    warm_up
        Iterations before the first look; None: as many as the first certificate takes.
    """
    # Parties of the run before refer to each other: they would take as much memory once more.
    gc.collect()
    federation = Federation(
        split.parties, Preprocessing(overlap=split.overlap, confirmed=ONE_TABLE)
    )
    began: list[tuple[int, list[EncryptionCost], float]] = []
    ended: list[tuple[float, list[EncryptionCost]]] = []

    def costs() -> list[EncryptionCost]:
        """Of every party, then of the coordinator, as they are now."""
        parties, coordinator = federation.encryption_costs()
        return [*parties.values(), coordinator]

    def look(record: Record) -> None:
        now = perf_counter()
        if began and record.iteration == began[0][0] + measured:
            ended.append((now, costs()))
            raise _Enough
        warm = record.certified_at is not None if warm_up is None else record.iteration == warm_up
        if warm and not began:
            began.append((record.iteration, costs(), perf_counter()))

    with suppress(_Enough):
        federation.train(settings, progress=look)
    ((_, before, start),), ((end, after),) = began, ended
    *parties, coordinator = [b - a for a, b in zip(before, after, strict=True)]
    slowest = max(parties, key=lambda cost: cost.seconds)
    return Spell(end - start, slowest, sum(parties, EncryptionCost()), coordinator, measured)


def paper_settings(
    lam: float, iic: float, participation: float, cipher: str, certify_every: int | None = None
) -> Settings:
    return Settings(
        lam=lam,
        local="practical",
        iic=iic,
        participation=participation,
        cipher=cipher,
        certify_every=certify_every,
        gap=None,
    )


def settings_part(report: Report, data: DataSets) -> None:
    grid = Grid(title="Encryption in seconds per iteration")
    for heading in ("", "slowest party", "by value", "ratio", "all", "by value", "ratio", "paper"):
        grid.add_column(heading, justify="right" if heading else "left")
    found: list[Spell] = []
    papers: list[float] = []
    cases = CASES[::3] if report.smoke else CASES
    for case in cases:
        fractions = [0.9] if report.smoke else list(case.fractions)
        named = {f: f"settings, {case.name}, {f:g}" for f in fractions}
        wanted = [f for f, name in named.items() if report.wants(f"{name}: ")]
        if not wanted:
            continue
        if not found:
            print(HEADER, flush=True)
        split, iterations = case.cut(data), 2 if report.smoke else case.measured
        for fraction in wanted:
            iic, paper = case.fractions[fraction]
            # The paper certifies nothing: the values of a certificate, all of a table at once,
            # would make value by value look slow. The run's first one is waited for.
            settings = paper_settings(case.lam, iic, fraction, "pad", certify_every=10**9)
            spell = watch(split, settings, iterations)
            found.append(spell)
            papers.append(paper)
            name = named[fraction]
            cells = [name.removeprefix("settings, ")]
            for who, (measured, counted), most in (
                ("slowest party", spell.slowest_seconds, 1 / 100),
                ("all", spell.seconds, None),
            ):
                report.add(f"{name}: {who}", measured, "s/iteration", anchor=counted)
                report.add(f"{name}: {who}, ratio", measured / counted, "×", bar=most)
                cells += [f"{measured:.3g}", f"{counted:.4g}", f"1/{counted / measured:,.0f}"]
            grid.add_row(*cells, f"{paper:g}")
    if not found:
        return
    Console(width=110).print(grid)
    complete = len(found) == sum(len(case.fractions) for case in CASES)
    for who, pairs in (
        ("slowest party", [spell.slowest_seconds for spell in found]),
        ("all", [spell.seconds for spell in found]),
    ):
        mean = geometric_mean([measured / counted for measured, counted in pairs])
        name = f"settings, geometric mean of {len(found)}: {who}, ratio"
        report.add(name, mean, "×", bar=1 / 1000 if complete else None)
    beside = zip(found, papers, strict=True)
    mean = geometric_mean([spell.slowest_seconds[0] / paper for spell, paper in beside])
    report.add(f"settings, geometric mean of {len(found)}: slowest party over paper", mean, "×")


# ── share ─────────────────────────────────────────────────────────────────────────────────────


def share_part(report: Report, data: DataSets) -> None:
    """Over two passes over the data, with one certificate each, as a user's run has them."""
    name = "share, MNIST 500, 0.9"
    if not report.wants(f"{name}: "):
        return
    split, iic, every = data.mnist(500), 0.08337, 1 if report.smoke else 12
    # Blocks of ``plain`` are timed here alone, as those of the others are everywhere.
    with patch.object(Plain, "clock", Cipher.clock):
        spells = {
            cipher: watch(split, paper_settings(1e-3, iic, 0.9, cipher), 2 * every, warm_up=every)
            for cipher in ("plain", "pad")
        }
    plain, padded_ = (spells[c].wall / spells[c].iterations for c in ("plain", "pad"))
    booked = {cipher: spell.seconds[0] for cipher, spell in spells.items()}
    report.add(f"{name}: iteration with plain", plain, "s")
    report.add(f"{name}: iteration with pad", padded_, "s", anchor=plain)
    # Making, reading and adding blocks is booked too, and that plain blocks cost as well.
    report.add(f"{name}: blocks with plain", booked["plain"], "s/iteration")
    report.add(f"{name}: blocks and encryption with pad", booked["pad"], "s/iteration")
    extra = booked["pad"] - booked["plain"]
    report.add(f"{name}: encryption's part", extra / padded_, "of the iteration", bar=0.25)
    report.add(f"{name}: with the blocks' part", booked["pad"] / padded_, "of the iteration")


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("What encryption costs", "held against", arguments)
    data = DataSets(report.smoke)
    values_part(report)
    settings_part(report, data)
    share_part(report, data)
    report.close()


if __name__ == "__main__":
    main()
