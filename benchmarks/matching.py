"""What matching costs: three parties with 100,000 ids each, half of them common.

``hmac``   tokens from the run secret alone
``oprf``   tokens through two key holders, with proofs
``psi``    OpenMined's PSI (ECDH on P-256, no proofs) between the three pairs of parties: one of
           each pair learns their common ids

With ``--large 1000000``, two parties with so many ids each are matched through two key holders.

Every case runs in a process of its own, so that its peak of memory is its own: the figures are
wall seconds, seconds of the processor over all threads, and MiB above what Python, NumPy and Weft
take before the first id. All parties share this machine and answer one after the other; over a
network they would work at the same time.

The peer takes ``pip install openmined-psi==2.0.6``, which is no dependency of Weft.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import combinations
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np

from harness import Number, Report
from harness.matched import MatchedParties
from weft.crypto.primitives import oprf
from weft.crypto.primitives.multiscalar import weighted_sum
from weft.crypto.primitives.oprf import OprfKey
from weft.crypto.primitives.ristretto import multiply, random_scalars, threads
from weft.crypto.secret_bytes import Secret
from weft.data import Tile
from weft.guards.privacy_terms import Matching

PARTIES = ("north", "east", "south")
NO_PEER = (
    "OpenMined's PSI is not installed: `pip install openmined-psi==2.0.6` puts it beside these "
    "figures."
)
MIB = 1 << 20

Result = TypeVar("Result")


@dataclass
class Figures:
    """What one case took."""

    wall: float
    processor: float
    memory: float
    phases: dict[str, float] = field(default_factory=dict)
    bytes: int = 0
    round_trips: int = 0


def some_ids(count: int, party: int, form: str) -> list[str]:
    """The first half common to all, the second the party's own."""
    half = count // 2
    numbers = [*range(half), *range(half * (2 + party), half * (2 + party) + count - half)]
    return [form.format(10_000_000 + n) for n in numbers]


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def match(count: int, matching: Matching, form: str, parties: Sequence[str] = PARTIES) -> Figures:
    """From tiles in memory to views, over the channel."""

    def run(size: int) -> MatchedParties:
        tiles = {}
        for number, name in enumerate(parties):
            ids = np.array(some_ids(size, number, form), dtype=object)
            tiles[name] = [Tile.make(ids, [f"x{number}"], np.zeros((size, 1)))]
        return MatchedParties(tiles, "pad", matching=matching, separate=True)

    run(min(count, 100))  # compiles
    before, wall, processor = peak(), perf_counter(), process_time()
    found = run(count)
    wall, processor = perf_counter() - wall, process_time() - processor
    assert found.holdings.n_samples == count // 2 + len(parties) * (count - count // 2)
    meter = found.channel.meter
    phases = {name: cost.total for name, cost in meter.phases.items()}
    phases["coordinator, and making tiles"] = wall - sum(phases.values())
    reading = meter.read()
    return Figures(
        wall,
        processor,
        peak() - before,
        phases,
        reading.bytes_down + reading.bytes_up,
        meter.round_trips,
    )


def psi(count: int, matching: str, form: str) -> Figures:
    """Each pair of parties; the second learns which of its ids the first has."""
    import private_set_intersection.python as peer  # type: ignore[import-not-found]

    lists = [some_ids(count, number, form) for number in range(len(PARTIES))]
    before, wall, processor = peak(), perf_counter(), process_time()
    size = 0
    for one, other in combinations(lists, 2):
        server = peer.server.CreateWithNewKey(True)
        client = peer.client.CreateWithNewKey(True)
        setup = server.CreateSetupMessage(1e-9, len(other), one, peer.DataStructure.RAW)
        request = client.CreateRequest(other)
        response = server.ProcessRequest(request)
        found = client.GetIntersection(setup, response)
        assert len(found) == count // 2
        size += sum(len(m.SerializeToString()) for m in (setup, request, response))
    wall, processor = perf_counter() - wall, process_time() - processor
    return Figures(wall, processor, peak() - before, bytes=size, round_trips=2)


def match_two(count: int, matching: Matching, form: str) -> Figures:
    return match(count, "oprf", form, PARTIES[:2])


WAYS = {"hmac": match, "oprf": match, "oprf, two parties": match_two, "psi": psi}
PLAIN, SIGNS = "p{}", "PT-{:09d}"


def alone(report: Report, way: str, count: int, form: str) -> Figures:
    """Run a case in a fresh process; a smoke run in this one, whose peak of memory may be over."""
    if report.smoke:
        return WAYS[way](count, way, form)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(WAYS[way], (count, way, form))


def add(report: Report, name: str, figures: Figures, peer: Figures | None) -> None:
    for phase, seconds in figures.phases.items():
        report.add(f"{name}: {phase}", seconds, "s, all parties")
    report.add(f"{name}: wall", figures.wall, "s", anchor=peer and peer.wall)
    report.add(f"{name}: processor", figures.processor, "s", anchor=peer and peer.processor)
    report.add(f"{name}: memory", figures.memory, "MiB", anchor=peer and peer.memory)
    report.add(f"{name}: bytes", figures.bytes / MIB, "MiB", anchor=peer and peer.bytes / MIB)
    if peer is not None:
        report.add(f"{name}: wall over PSI", figures.wall / peer.wall, "×")
        report.add(f"{name}: processor over PSI", figures.processor / peer.processor, "×")


def oprf_steps(report: Report, count: int) -> None:
    """Where the time of one id under ``oprf`` goes, in seconds of the processor over all threads.

    Four multiplications by secret scalars, all in libsodium: by the blind, by both keys, and to
    take the blind off.
    """
    inputs = [text.encode() for text in some_ids(count, 0, PLAIN)]
    key = OprfKey(Secret(random_scalars(1)))
    blinds = random_scalars(count)
    weighted_sum(random_scalars(2), oprf.hash_to_group(inputs[:2]))  # compiles

    def timed(name: str, step: Callable[[], Result]) -> Result:
        began = process_time()
        found = step()
        report.add(f"oprf, an id: {name}", (process_time() - began) / count * 1e6, "µs")
        return found

    points = timed("to a point of the curve", lambda: oprf.hash_to_group(inputs))
    blinded = timed("by its blind", lambda: multiply(blinds, points))
    evaluated = timed("by a key", lambda: key.evaluate(blinded))
    proofs = timed("its part of a proof", lambda: key.prove(blinded, evaluated))
    timed("checking that", lambda: oprf.verify(key.public, blinded, evaluated, proofs))
    elements = timed("blind taken off", lambda: oprf.unblind(evaluated, blinds))
    timed("to 64 bytes", lambda: oprf.finalize(inputs, elements))


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report(
        f"Matching, {len(PARTIES)} parties, {threads()} threads",
        "OpenMined PSI",
        arguments,
        {
            "count": Number(100_000, 40, "ids of each party"),
            "large": Number(0, 40, "ids of each of two parties, beside; 0: none"),
        },
    )
    count = int(report.number("count"))
    sizes = (count // 2, count)
    peers: dict[int, Figures] = {}
    if find_spec("private_set_intersection") is None:
        print(NO_PEER)
    else:
        for size in sizes:
            if report.wants(name := f"psi, {size:,}") or report.wants(f"oprf, {size:,}"):
                peers[size] = alone(report, "psi", size, PLAIN)
                add(report, name, peers[size], None)
    for way in ("hmac", "oprf"):
        found: dict[int, Figures] = {}
        for size in sizes:
            if report.wants(name := f"{way}, {size:,}"):
                found[size] = alone(report, way, size, PLAIN)
                add(report, name, found[size], peers.get(size))
        if len(found) == len(sizes):
            half, whole = (found[size] for size in sizes)
            if half.memory:
                more = whole.memory / half.memory
                report.add(f"{way}: memory, twice the ids", more, "×", bar=2.2)
            report.add(f"{way}: wall, twice the ids", whole.wall / half.wall, "×")
    if report.wants("oprf, an id"):
        oprf_steps(report, min(count, 8192))
    large = int(report.number("large"))
    if large and report.wants(name := f"oprf, two parties, {large:,}"):
        add(report, name, alone(report, "oprf, two parties", large, PLAIN), None)
    if report.wants(name := f"oprf, {sizes[0]:,} with signs"):
        add(report, name, alone(report, "oprf", sizes[0], SIGNS), None)
    report.close()


if __name__ == "__main__":
    main()
