"""All messages of Weft and its plug-ins, loaded: sites and audits must know every phase."""

from __future__ import annotations

import logging
from types import ModuleType

import weft.federation.column_level_agreement.messages
import weft.federation.descriptive_statistics_messages
import weft.federation.messages
import weft.federation.study_check_messages
import weft.federation.weight_and_offset_letters.messages
import weft.matching.messages
import weft.solvers.hyfdca.messages
import weft.solvers.rounds.messages
import weft.solvers.secret_sharing.messages
import weft.solvers.setup_result_and_checkpoint_messages
import weft.solvers.subspace.messages
import weft.sums.table_scaling_and_certificate_messages
from weft.plugins import Registry
from weft.protocol.phase_with_request_and_reply import declared_phases

_OWN = (
    weft.federation.messages,
    weft.federation.column_level_agreement.messages,
    weft.federation.study_check_messages,
    weft.federation.descriptive_statistics_messages,
    weft.federation.weight_and_offset_letters.messages,
    weft.matching.messages,
    weft.solvers.hyfdca.messages,
    weft.solvers.setup_result_and_checkpoint_messages,
    weft.solvers.rounds.messages,
    weft.solvers.secret_sharing.messages,
    weft.solvers.subspace.messages,
    weft.sums.table_scaling_and_certificate_messages,
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
