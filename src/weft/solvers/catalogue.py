"""All algorithms, each with what it needs and what it guarantees."""

from __future__ import annotations

from weft.solvers.admm.entries import SPLITTING
from weft.solvers.declaration import Algorithm
from weft.solvers.disco.entries import DISCO
from weft.solvers.dual.entries import DUAL
from weft.solvers.fedavg.entries import AVERAGING
from weft.solvers.fedhybrid.entries import FEDHYBRID
from weft.solvers.fedsgd.entries import COLUMNS
from weft.solvers.hyfdca.entries import HYFDCA
from weft.solvers.subspace.entries import SUBSPACE

#: By name, in the order in which they are listed and recommended.
ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        *(HYFDCA, *SUBSPACE, FEDHYBRID, *AVERAGING, *COLUMNS, DISCO, *DUAL, *SPLITTING),
    )
}
