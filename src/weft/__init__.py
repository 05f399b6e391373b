"""Weft: hybrid federated learning with a proof that the result equals central training."""

__version__ = "0.1.0"
