"""Settings that only the solvers for full participation read."""

from __future__ import annotations

from typing import Literal

from weft.errors import ConfigError
from weft.solvers.hyfdca.settings import HyfdcaSettings

#: The value of ``when_missing`` with which the other parties go on.
GO_ON: Literal["hyfdca"] = "hyfdca"
#: The solver that has second moments told, and the only one of which a party does.
SPAN_NEWTON = "span-newton"
_MOST_GROUPS = 100


class SubspaceSettings(HyfdcaSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Groups of cuts, and what happens when a party stays away.

    They include HyFDCA's settings, because HyFDCA can stand in for these solvers.

    Attributes
    ----------
    groups
        Parts of the samples that get cuts of their own (cutting planes).
    when_missing
        What a solver for full participation does when a party stays away for longer than
        ``patience``: ``stop`` ends with the certificate reached so far, ``hyfdca`` goes on without
        the party and without certificates, until it is back.
    """

    groups: int = 1
    when_missing: Literal["stop", "hyfdca"] = "stop"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.groups <= _MOST_GROUPS:
            raise ConfigError(f"groups is {self.groups}; give 1 to {_MOST_GROUPS}")

    @property
    def hands_over(self) -> bool:
        """Whether HyFDCA stands in for a missing party; grouped cuts leave it no point to start."""
        return self.when_missing == GO_ON and self.groups == 1
