"""All messages that Weft declares, loaded: sites and audits must know every phase."""

from __future__ import annotations

from weft.protocol.phase import declared_phases

__all__ = ["declared_phases"]
