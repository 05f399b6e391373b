"""HyFDCA: hybrid federated dual coordinate ascent (Overman, Blum and Klabjan, 2023)."""

from weft.algorithms.hyfdca.coordinator import HyfdcaCoordinator
from weft.algorithms.hyfdca.party import HyfdcaParty

__all__ = ["HyfdcaCoordinator", "HyfdcaParty"]
