"""The kinds of kits; apart, so that opening one loads nothing that reads plans."""

from __future__ import annotations

from typing import Literal

Kind = Literal["coordinator", "site", "submitter"]

#: The folder of the coordinator's kit, and the name of its signing request.
COORDINATOR = "coordinator"
