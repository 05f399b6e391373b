"""All messages that Weft declares, loaded: sites and audits must know every phase."""

from __future__ import annotations

import weft.federation.messages
import weft.matching.messages
import weft.solvers.hyfdca.messages
import weft.solvers.messages
import weft.solvers.rounds.messages
import weft.solvers.subspace.messages
import weft.sums.messages
import weft_neural.messages
from weft.protocol.phase import declared_phases

#: Every module with phases. Naming them keeps the imports, which look unused otherwise.
MODULES = (
    weft.federation.messages,
    weft.matching.messages,
    weft_neural.messages,
    weft.solvers.hyfdca.messages,
    weft.solvers.messages,
    weft.solvers.rounds.messages,
    weft.solvers.subspace.messages,
    weft.sums.messages,
)

__all__ = ["MODULES", "declared_phases"]
