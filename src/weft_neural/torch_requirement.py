"""PyTorch, which only those need who train networks or predict with them."""

from __future__ import annotations

from importlib import import_module

from weft.errors import ConfigError


def require_torch() -> None:
    """Refuse in one sentence where PyTorch is not installed."""
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            "networks need PyTorch, which is not installed here; pip install 'weft[neural]'"
        ) from None
