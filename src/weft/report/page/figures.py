"""The report's pictures for papers, as SVG and PNG."""

from __future__ import annotations

from pathlib import Path


def write_figures(
    folder: Path, into: Path, *, latency: float | None = None
) -> tuple[list[Path], list[str]]:
    """Stub."""
    return [], []
