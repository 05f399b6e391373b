"""Arguments and options that several commands with a kit have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

KitFolder = Annotated[
    Path,
    typer.Argument(
        metavar="KIT", help="Start-up kit, from 'weft federation new', or folder, from 'accept'."
    ),
]
LogOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log", help="Print events as text or JSON lines; kept, at first text."),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option("--metrics", metavar="FILE", help="Write metrics for Prometheus; not kept."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object only.")]
