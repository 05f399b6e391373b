"""Dual methods of the field: CoCoA and SDCA, D3CA, FedDCD."""
