"""The dual methods, each with what it needs and what it guarantees."""

from __future__ import annotations

from weft.solvers.declaration import Algorithm, bounds
from weft.solvers.dual.cocoa import CocoaCoordinator, CocoaParty, CocoaPlusParty
from weft.solvers.dual.d3ca import D3caCoordinator, D3caParty
from weft.solvers.dual.feddcd import FeddcdCoordinator, FeddcdParty
from weft.solvers.dual.options import D3caOptions, FeddcdOptions

_READS = ("iic", "certify_every")
_BLIND = "ciphertexts; totals of losses and norms"
_WEIGHTS = "w of all features"

DUAL = (
    Algorithm(
        "cocoa",
        CocoaCoordinator,
        CocoaParty,
        "dual coordinate ascent on every party's rows, changes averaged",
        reads=_READS,
        cut="rows",
        everyone=True,
        weighs=True,
        guarantee="the optimum, certified",
        trips="1",
        reference="Jaggi et al. 2014",
        coordinator_sees=_BLIND,
        parties_see=_WEIGHTS,
    ),
    Algorithm(
        "cocoa+",
        CocoaCoordinator,
        CocoaPlusParty,
        "dual coordinate ascent on every party's rows, changes added",
        reads=_READS,
        cut="rows",
        everyone=True,
        weighs=True,
        guarantee="the optimum, certified",
        trips="1",
        reference="Ma et al. 2015, with γ = 1 and σ' = parties",
        coordinator_sees=_BLIND,
        parties_see=_WEIGHTS,
    ),
    Algorithm(
        "sdca",
        CocoaCoordinator,
        CocoaParty,
        "dual coordinate ascent on the whole table, which one party has",
        reads=_READS,
        cut="whole",
        everyone=True,
        guarantee="the optimum, certified",
        trips="1",
        reference="Shalev-Shwartz and Zhang 2013",
        coordinator_sees=_BLIND,
        parties_see=_WEIGHTS,
    ),
    Algorithm(
        "d3ca",
        D3caCoordinator,
        D3caParty,
        "dual coordinate ascent on every tile, proposals averaged by sample",
        options=D3caOptions,
        reads=_READS,
        everyone=True,
        guarantee="nothing; where no sample is shared it is CoCoA",
        trips="2",
        reference="Nathan and Klabjan 2016",
        coordinator_sees=_BLIND,
        parties_see="α of their samples, w of their features",
    ),
    Algorithm(
        "feddcd",
        FeddcdCoordinator,
        FeddcdParty,
        "dual coordinate descent over parties, which solve local problems",
        options=FeddcdOptions,
        tuned=bounds(step=(0.1, 1.9), accuracy=(1e-10, 1e-1)),
        reads=("certify_every",),
        cut="rows",
        losses="smooth",
        weighs=True,
        guarantee="the optimum, certified, with sets of two parties or more that mix",
        trips="2",
        reference="Fan, Fang and Friedlander 2022",
        coordinator_sees=_BLIND,
        parties_see="w of all features, as a mean over all who take part",
    ),
)
