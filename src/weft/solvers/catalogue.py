"""All algorithms, each with what it needs and what it guarantees."""

from __future__ import annotations

from weft.solvers.admm import ADMM
from weft.solvers.algorithm import Algorithm
from weft.solvers.cocoa import COCOA, COCOA_PLUS, SDCA
from weft.solvers.d3ca import D3CA
from weft.solvers.disco import DISCO
from weft.solvers.fedavg import FEDAVG, FEDPROX, HYFEM
from weft.solvers.feddcd import FEDDCD
from weft.solvers.fedhybrid.method import FEDHYBRID
from weft.solvers.fedsgd import FEDBCD, FEDSGD
from weft.solvers.hyfdca.entries import HYFDCA
from weft.solvers.subspace.entries import SUBSPACE

#: By name, in the order in which they are listed and recommended.
ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        *(HYFDCA, *SUBSPACE, FEDHYBRID, FEDAVG, FEDPROX, HYFEM, FEDSGD, FEDBCD, DISCO),
        *(COCOA, COCOA_PLUS, SDCA, D3CA, FEDDCD, ADMM),
    )
}
