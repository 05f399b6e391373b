"""What each extractor is told. No torch here: whoever checks a configuration may lack it."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError

#: Widths beyond this are a slip, or a message that wants to fill a machine's memory.
_WIDEST = 65_536


def _check_widths(name: str, widths: tuple[int, ...]) -> None:
    for width in widths:
        if not 1 <= width <= _WIDEST:
            raise ConfigError(f"{name} has the width {width}; give widths from 1 to {_WIDEST}")


class IdentityOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to choose."""


class LinearOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One affine map.

    Attributes
    ----------
    features
        Length of its output.
    """

    features: int = 32

    def __post_init__(self) -> None:
        _check_widths("features", (self.features,))


class MlpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Affine layers with a ReLU after each.

    Attributes
    ----------
    hidden
        Widths of the layers before the last.
    features
        Width of the last, which is the output.
    """

    hidden: tuple[int, ...] = (64,)
    features: int = 32

    def __post_init__(self) -> None:
        _check_widths("hidden", self.hidden)
        _check_widths("features", (self.features,))


class CnnOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """3 × 3 convolutions with stride 2, then one affine layer; a ReLU after each.

    Attributes
    ----------
    channels
        Channels after each convolution; each halves the image.
    features
        Length of the output.
    """

    channels: tuple[int, ...] = (32, 64)
    features: int = 64

    def __post_init__(self) -> None:
        if not self.channels:
            raise ConfigError("channels is empty; give at least one number, such as [32, 64]")
        _check_widths("channels", self.channels)
        _check_widths("features", (self.features,))


class ResNetOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a residual network begins and what it normalises by.

    Attributes
    ----------
    stem
        ``small``: 3 × 3 with stride 1; ``large``: 7 × 7 with stride 2, then a 3 × 3 max-pool with
        stride 2, as published; ``auto``: small up to 64 pixels.
    norm
        ``batch``: by the batch, with running averages for testing; ``group``: by 32 groups of a
        sample's own channels, which needs no state and does not depend on the batch.
    """

    stem: Literal["auto", "small", "large"] = "auto"
    norm: Literal["batch", "group"] = "batch"
