"""The averaging methods in the catalogue."""

from __future__ import annotations

from weft.solvers.declaration import Algorithm
from weft.solvers.fedavg import FedavgParty, FedproxParty, HyfemParty
from weft.solvers.fedavg_coordinator import (
    FedavgCoordinator,
    FedproxCoordinator,
    HyfemCoordinator,
)
from weft.solvers.fedavg_options import AveragingOptions, HyfemOptions, ProxOptions

_BLIND = "ciphertexts; totals of losses and norms"
_MEANS = "w of their features, as a mean over all who hold them and take part"
AVERAGING = (
    Algorithm(
        "fedavg",
        FedavgCoordinator,
        FedavgParty,
        "local gradient steps on every tile, averaged by feature",
        options=AveragingOptions,
        reads=("iic", "certify_every"),
        weighs=True,
        guarantee="nothing on hybrid data; on rows, gradient = 'full' with one step is gradient "
        "descent",
        trips="1",
        reference="McMahan et al. 2017; for hybrid data as in Overman, Blum and Klabjan 2022",
        coordinator_sees=_BLIND,
        parties_see=_MEANS,
    ),
    Algorithm(
        "fedprox",
        FedproxCoordinator,
        FedproxParty,
        "FedAvg whose local steps are pulled towards the mean",
        options=ProxOptions,
        reads=("iic", "certify_every"),
        weighs=True,
        guarantee="nothing; at a fixed μ it ends beside the optimum",
        trips="1",
        reference="Li et al. 2020 (Federated optimization in heterogeneous networks)",
        coordinator_sees=_BLIND,
        parties_see=_MEANS,
    ),
    Algorithm(
        "hyfem",
        HyfemCoordinator,
        HyfemParty,
        "HyFEM for linear models: known features need no matching",
        options=HyfemOptions,
        reads=("iic", "certify_every"),
        guarantee="nothing: parties and server solve another problem",
        trips="1",
        reference="Zhang et al. 2020 and 2024; linear as in Overman, Blum and Klabjan 2022",
        coordinator_sees=_BLIND,
        parties_see=_MEANS,
    ),
)
