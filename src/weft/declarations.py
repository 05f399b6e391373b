"""All messages that Weft declares, loaded: sites and audits must know every phase."""

from __future__ import annotations

import weft.federation.messages
import weft.matching.messages
import weft.neural.messages
import weft.solvers.hyfdca.messages
import weft.solvers.messages
import weft.solvers.rounds.messages
import weft.solvers.subspace.messages
import weft.sums.messages
from weft.protocol.phase import declared_phases

__all__ = ["declared_phases"]
