"""Weft: hybrid federated learning with a proof that the result equals central training.

>>> from weft import HybridClassifier
>>> from weft.data import SPLITS, load
>>> split = SPLITS["grid"](load("breast_cancer"), k=2, q=3)
>>> model = HybridClassifier(scaling="standard", unit_rows=True, gap=1e-2).fit(split)
>>> model.gap_ <= 1e-2
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.lazy_names import found_on_first_use

if TYPE_CHECKING:
    from weft.data.read_tiles import read_tile
    from weft.data.tile import Tile
    from weft.errors import WeftError
    from weft.estimators import HybridClassifier, HybridGLM, HybridRegressor
    from weft.federation.local_federation import Federation
    from weft.federation.model import Model, load_model
    from weft.federation.preprocessing_settings import Preprocessing
    from weft.solvers.run_settings import Settings

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

__getattr__ = found_on_first_use(
    __name__,
    {
        "Federation": "weft.federation.local_federation",
        "HybridClassifier": "weft.estimators",
        "HybridGLM": "weft.estimators",
        "HybridRegressor": "weft.estimators",
        "Model": "weft.federation.model",
        "Preprocessing": "weft.federation.preprocessing_settings",
        "Settings": "weft.solvers.run_settings",
        "Tile": "weft.data.tile",
        "WeftError": "weft.errors",
        "load_model": "weft.federation.model",
        "read_tile": "weft.data.read_tiles",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
