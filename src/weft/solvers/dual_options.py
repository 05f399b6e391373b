"""What dual methods are told besides the common settings."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError


class D3caOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """D3CA: by what the sum of all proposals for a sample is divided.

    Attributes
    ----------
    average
        ``parties``: by the number of parties, as in the paper, whose P × Q tiles are the parties;
        where nobody shares a sample this is CoCoA. ``holders``: by how many parties propose
        something for the sample, as if those who hold other samples did not move. That is faster
        where it converges.
    """

    average: Literal["parties", "holders"] = "parties"


class FeddcdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedDCD: how far dual variables move, and how well local problems are solved.

    Attributes
    ----------
    step
        η over the strong convexity λ of every local function: the paper's step is 1, and the dual
        objective falls with anything below 2.
    accuracy
        Local problems are solved until a bound on the distance to their solution, relative to its
        size or to one, is at most this.
    """

    step: float = 1.0
    accuracy: float = 1e-9

    def __post_init__(self) -> None:
        if not 0 < self.step < 2:
            raise ConfigError(f"step is {self.step:g}; give a multiple of λ above 0 and below 2")
        if not self.accuracy > 0:
            raise ConfigError(f"accuracy is {self.accuracy:g}; give a number above 0, try 1e-9")
