"""What a submitter asks parties and coordinator to do in a run that trains networks."""

from __future__ import annotations

from typing import Literal

from weft.network.submitted_task import TaskWithSettings
from weft_neural.settings import NeuralSettings


class NeuralTask(
    TaskWithSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="neural"
):
    """A run that trains networks by HyFEM.

    Attributes
    ----------
    missing
        A blank cell of a table: ``error``, ``zero``, or ``mean`` of its column.
    """

    settings: NeuralSettings
    missing: Literal["error", "zero", "mean"] = "error"
