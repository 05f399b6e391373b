"""Weft: hybrid federated learning with a proof that the result equals central training.

>>> from weft import HybridClassifier
>>> from weft.data import SPLITS, load
>>> split = SPLITS["grid"](load("breast_cancer"), k=2, q=3)
>>> model = HybridClassifier(scaling="standard", unit_rows=True, gap=1e-2).fit(split)
>>> model.gap_ <= 1e-2
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.data.read_tiles import read_tile
    from weft.data.tile import Tile
    from weft.errors import WeftError
    from weft.estimators import HybridClassifier, HybridGLM, HybridRegressor
    from weft.federation.local_federation import Federation
    from weft.federation.model import Model, load_model
    from weft.federation.preprocessing_settings import Preprocessing
    from weft.solvers.settings import Settings

__version__ = "0.2.0"

__all__ = [
    "Federation",
    "HybridClassifier",
    "HybridGLM",
    "HybridRegressor",
    "Model",
    "Preprocessing",
    "Settings",
    "Tile",
    "WeftError",
    "load_model",
    "read_tile",
]

_HOMES = {
    "Federation": "weft.federation.local_federation",
    "HybridClassifier": "weft.estimators",
    "HybridGLM": "weft.estimators",
    "HybridRegressor": "weft.estimators",
    "Model": "weft.federation.model",
    "Preprocessing": "weft.federation.preprocessing_settings",
    "Settings": "weft.solvers.settings",
    "Tile": "weft.data.tile",
    "WeftError": "weft.errors",
    "load_model": "weft.federation.model",
    "read_tile": "weft.data.read_tiles",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use: a coordinator that imports its own part of Weft loads no reader
    # and no tile, and `weft --help` need not wait for the compiler.
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
