"""All messages of Weft and its plug-ins, loaded: sites and audits must know every phase."""

from __future__ import annotations

import logging
from types import ModuleType

import weft.federation.check_messages
import weft.federation.columns.messages
import weft.federation.describe_messages
import weft.federation.messages
import weft.federation.told_column_messages
import weft.matching.messages
import weft.solvers.common_messages
import weft.solvers.hyfdca.messages
import weft.solvers.rounds.messages
import weft.solvers.sealed.messages
import weft.solvers.subspace.messages
import weft.sums.scaling_and_certificate_messages
from weft.plugins import Registry
from weft.protocol.request_reply import declared_phases

_OWN = (
    weft.federation.messages,
    weft.federation.columns.messages,
    weft.federation.check_messages,
    weft.federation.describe_messages,
    weft.federation.told_column_messages,
    weft.matching.messages,
    weft.solvers.hyfdca.messages,
    weft.solvers.common_messages,
    weft.solvers.rounds.messages,
    weft.solvers.sealed.messages,
    weft.solvers.subspace.messages,
    weft.sums.scaling_and_certificate_messages,
)
_ALL: Registry[ModuleType] = Registry(
    "messages",
    {module.__name__: module for module in _OWN},
    lambda value: isinstance(value, ModuleType),
)
#: Every module with phases. Weft's own come first, so that no plug-in can take the name of one.
MODULES = tuple(_ALL.values())

for _problem in _ALL.problems:
    logging.getLogger("weft").warning("%s; its messages are not known here", _problem)

__all__ = ["MODULES", "declared_phases"]
