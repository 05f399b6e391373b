"""HyFDCA: hybrid federated dual coordinate ascent (Overman, Blum and Klabjan, 2023)."""

from weft.solvers.hyfdca.coordinator import HyfdcaCoordinator
from weft.solvers.hyfdca.party import HyfdcaParty

__all__ = ["HyfdcaCoordinator", "HyfdcaParty"]
