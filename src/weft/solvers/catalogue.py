"""All algorithms, each with what it needs and what it guarantees."""

from __future__ import annotations

from weft.solvers.admm import ADMM
from weft.solvers.cocoa import COCOA, COCOA_PLUS, SDCA
from weft.solvers.d3ca import D3CA
from weft.solvers.declaration import Algorithm
from weft.solvers.disco import DISCO
from weft.solvers.fedavg import FEDAVG, FEDPROX, HYFEM
from weft.solvers.feddcd import FEDDCD
from weft.solvers.fedhybrid.method import FEDHYBRID
from weft.solvers.fedsgd import FEDBCD, FEDSGD
from weft.solvers.hyfdca import HyfdcaCoordinator, HyfdcaParty
from weft.solvers.subspace.coordinator import (
    CuttingPlanesCoordinator,
    LbfgsCoordinator,
    NewtonCgCoordinator,
)
from weft.solvers.subspace.party import SubspaceParty

_FAST = ("patience", "when_missing")
_OPTIMUM = "the optimum, certified"
_BLIND = "ciphertexts; totals of losses and norms"
_COEFFICIENTS = f"{_BLIND}; inner products of combined dual vectors"

_OURS = (
    Algorithm(
        "hyfdca",
        HyfdcaCoordinator,
        HyfdcaParty,
        "primal-dual training on any overlap of rows and columns, any subset of parties",
        reads=("local", "iic", "gamma", "norms", "certify_every"),
        ours=True,
        guarantee=_OPTIMUM,
        trips="2 (rows: 1); 3 to 5 for practical and theory",
        reference="Overman, Blum and Klabjan 2022, Algorithm 1; safe steps are ours",
        coordinator_sees=f"{_BLIND}; which samples are drawn",
        parties_see="z and α of their samples, w of their features",
    ),
    Algorithm(
        "cutting-planes",
        CuttingPlanesCoordinator,
        SubspaceParty,
        "certified in about a hundred round trips; losses with kinks, everyone takes part",
        reads=("groups", *_FAST),
        losses="kinks",
        everyone=True,
        spans=True,
        saves=False,
        ours=True,
        guarantee=_OPTIMUM,
        trips="2; 3 with groups or holders without labels",
        reference="Franc and Sonnenburg 2009 (OCAS); Teo et al. 2010 (BMRM); on sums, ours",
        coordinator_sees=_COEFFICIENTS,
        parties_see="z and dual vectors of their samples, w of their features",
    ),
    Algorithm(
        "lbfgs",
        LbfgsCoordinator,
        SubspaceParty,
        "quasi-Newton in two round trips an iteration; smooth losses, everyone takes part",
        reads=_FAST,
        losses="smooth",
        everyone=True,
        spans=True,
        saves=False,
        ours=True,
        guarantee=_OPTIMUM,
        trips="2; 3 with holders without labels",
        reference="Liu and Nocedal 1989; on sums, with dual bounds, ours",
        coordinator_sees=_COEFFICIENTS,
        parties_see="z and dual vectors of their samples, w of their features",
    ),
    Algorithm(
        "newton-cg",
        NewtonCgCoordinator,
        SubspaceParty,
        "Newton's method in a trust region; smooth losses, everyone takes part",
        reads=_FAST,
        losses="smooth",
        everyone=True,
        spans=True,
        saves=False,
        ours=True,
        guarantee=_OPTIMUM,
        trips="2 a Hessian product and 2 a step",
        reference="Lin, Weng and Keerthi 2008; on sums, ours",
        coordinator_sees=_COEFFICIENTS,
        parties_see="z and dual vectors of their samples, w of their features",
    ),
)

_FIELD = (
    *(FEDHYBRID, FEDAVG, FEDPROX, HYFEM, FEDSGD, FEDBCD, DISCO),
    *(COCOA, COCOA_PLUS, SDCA, D3CA, FEDDCD, ADMM),
)
ALGORITHMS = {algorithm.name: algorithm for algorithm in (*_OURS, *_FIELD)}
