"""The averaging methods in the catalogue."""

from __future__ import annotations

from functools import partial

from weft.solvers.declaration import Algorithm, Range
from weft.solvers.fedavg.coordinator import (
    FedavgCoordinator,
    FedproxCoordinator,
    HyfemCoordinator,
)
from weft.solvers.fedavg.options import AveragingOptions, HyfemOptions, ProxOptions
from weft.solvers.fedavg.party import FedavgParty, FedproxParty, HyfemParty
from weft.solvers.settings import Settings

_BLIND = "ciphertexts; totals of losses and norms"
_MEANS = "w of their features, as a mean over all who hold them and take part"
#: Bounds of section 7.3 of Overman, Blum and Klabjan; the rate is a/(b + √t).
_RATE: dict[str, Range] = {"a": (1e-5, 25.0), "b": (1e-5, 25.0)}
_PULL: Range = (1e-2, 1e4)


def _tuned(kind: type[AveragingOptions], settings: Settings, least_iic: float) -> dict[str, Range]:
    options = settings.read_options(kind)
    full = options.gradient == "full"
    found = {"a": _RATE["a"], "steps": (1.0, 100.0)} if full else {"iic": (least_iic, 5.0), **_RATE}
    return {**found, "mu": _PULL} if options.pull else found


AVERAGING = (
    Algorithm(
        "fedavg",
        FedavgCoordinator,
        FedavgParty,
        "local gradient steps on every tile, averaged by feature",
        options=AveragingOptions,
        tuned=partial(_tuned, AveragingOptions),
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
        tuned=partial(_tuned, ProxOptions),
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
        tuned=partial(_tuned, HyfemOptions),
        reads=("iic", "certify_every"),
        guarantee="nothing: parties and server solve another problem",
        trips="1",
        reference="Zhang et al. 2020 and 2024; linear as in Overman, Blum and Klabjan 2022",
        coordinator_sees=_BLIND,
        parties_see=_MEANS,
    ),
)
