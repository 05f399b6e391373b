"""What one round of matching classifiers costs the coordinator: nine parties, one hidden layer.

The server has 12 blocks of 512 inputs, every party 7 of them. A party's classifier is a shuffled
copy of one network with noise on it (``copies``, as in a run), or has nothing to do with those of
others (``unrelated``: the server's layer grows to its bound, and every assignment is hard). A round
is one sweep from the selections of a round before; the first round, which has none, is given too.

The peer computes the same costs row by row with NumPy, a loop over neurons within a loop over rows,
for one party of the smallest width: Weft's time beside it is that of the same costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np

from harness import Report
from weft_neural.neuron_matching import (
    Matched,
    Matching,
    match_classifiers,
    pruned,
    rematch_each_party_in_turn,
)
from weft_neural.neuron_matching.averaging import others_of
from weft_neural.neuron_matching.classifier_arrays import Classifier
from weft_neural.neuron_matching.costs import Others, weighted_costs

CLASSES = 10


@dataclass(frozen=True)
class Size:
    """Parties, blocks of inputs and how many of them each party has, and widths to try."""

    parties: int = 9
    blocks: int = 12
    held: int = 7
    features: int = 512
    widths: tuple[int, ...] = (512, 1024, 2048)
    #: What compiles all that is timed.
    smallest: int = 64

    @property
    def n_inputs(self) -> int:
        return self.blocks * self.features


SMOKE = Size(parties=3, blocks=3, held=2, features=4, widths=(4, 8), smallest=4)


@dataclass
class Scene:
    """Classifiers of one round, and of the next."""

    n_inputs: int
    classifiers: dict[str, list[Any]] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def match(self, settings: Matching, previous: Matched | None = None) -> Matched:
        return match_classifiers(
            self.classifiers,
            self.inputs,
            self.n_inputs,
            self.weights,
            settings=settings,
            previous=previous,
            random=np.random.default_rng(1),
        )


def make(size: Size, width: int, related: bool, noise: float = 0.3) -> Scene:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=np.float32)

    net = [normal(width, size.n_inputs + 1), normal(CLASSES, width + 1)]
    scene = Scene(size.n_inputs)
    for number in range(size.parties):
        name = f"party{number}"
        blocks = np.sort(random.permutation(size.blocks)[: size.held])
        scene.inputs[name] = _columns(blocks, size.features)
        scene.weights[name] = 1 + number / size.parties
        parts = pruned(net, scene.inputs[name], [random.permutation(width)])
        scene.classifiers[name] = [
            part + np.float32(noise) * normal(*part.shape) if related else normal(*part.shape)
            for part in parts
        ]
    return scene


def _columns(blocks: Any, features: int) -> Any:
    return (blocks[:, None] * features + np.arange(features)).ravel()


@contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """Seconds of the processor by part of the procedure, while inside."""
    seconds: dict[str, float] = {}
    places = [
        (rematch_each_party_in_turn, "others_of", "means of the others"),
        (rematch_each_party_in_turn.pricing, "weighted_costs", "cost"),
        (rematch_each_party_in_turn, "assign", "assignment"),
        (rematch_each_party_in_turn, "averaged", "averaging"),
        (rematch_each_party_in_turn, "objective", "averaging"),
    ]
    real = [getattr(module, name) for module, name, _ in places]

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            begin = process_time()
            found = function(*args)
            seconds[part] = seconds.get(part, 0.0) + process_time() - begin
            return found

        return wrapper

    for (module, name, part), function in zip(places, real, strict=True):
        setattr(module, name, timed(function, part))
    try:
        yield seconds
    finally:
        for (module, name, _), function in zip(places, real, strict=True):
            setattr(module, name, function)


def naive(neurons: Any, weight: float, others: Others) -> Any:
    """The weighted costs, neuron by neuron and row by row."""
    sizes = np.diff(others.starts)
    weights = np.repeat(others.weights, sizes, axis=1)
    means = others.sums / np.maximum(weights, np.float32(1e-30))
    factors = weight * weights / (weight + weights)
    ordered = neurons[:, others.order]
    costs = np.empty((len(neurons), len(means)), dtype=np.float32)
    for j, neuron in enumerate(ordered):
        for i, mean in enumerate(means):
            costs[j, i] = (factors[i] * np.square(neuron - mean)).sum()
    return costs


def compare(report: Report, scene: Scene) -> None:
    """One party's costs, ours and the peer's."""
    parties = [
        Classifier(name, layers, scene.inputs[name], scene.weights[name])
        for name, layers in scene.classifiers.items()
    ]
    rows = scene.match(Matching()).rows
    mine = parties[0]
    times = []
    found = []
    for way in (naive, weighted_costs):
        others = others_of(mine, 0, rows, parties, scene.weights)
        assert others is not None
        begin = process_time()
        found.append(way(mine.layers[0], mine.weight, others))
        times.append(process_time() - begin)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-2)
    report.add("costs of a party, in loops", times[0], "s")
    report.add("costs of a party", times[1], "s", anchor=times[0])
    report.add("loops over ours", times[0] / times[1], "×", better="higher")


def rounds(report: Report, size: Size, kind: str, width: int) -> float | None:
    """Seconds of a round of that width, its parts told."""
    if not report.wants(name := f"{kind}, {width}"):
        return None
    scene, settings = make(size, width, kind == "copies"), Matching()
    begin = process_time()
    before = scene.match(settings)
    report.add(f"{name}: first round", process_time() - begin, "s")
    with clocks() as seconds:
        begin = process_time()
        after = scene.match(settings, before)
        whole = process_time() - begin
    for part, spent in seconds.items():
        report.add(f"{name}: {part}", spent, "s")
    report.add(f"{name}: a round", whole, "s")
    report.add(f"{name}: rows", len(after.layers[0]), "")
    return whole


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Matching classifiers of parties", "loops", arguments)
    size = SMOKE if report.smoke else Size()
    make(size, size.smallest, True).match(Matching())  # compiles
    if report.wants("loops"):
        compare(report, make(size, size.widths[0], True))
    for kind in ("copies", "unrelated"):
        spent = {width: rounds(report, size, kind, width) for width in size.widths}
        times = [seconds for seconds in spent.values() if seconds is not None]
        if len(times) == len(size.widths):
            slope = np.polyfit(np.log(size.widths), np.log(times), 1)[0]
            report.add(f"{kind}: a round grows as width to the power", float(slope), "", bar=3)
    report.close()


if __name__ == "__main__":
    main()
