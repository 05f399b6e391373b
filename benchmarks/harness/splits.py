"""The papers' data sets, loaded once and cut as the papers cut them."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from weft.data import SPLITS, Split, Table, load

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def find_data() -> None:
    """Let WEFT_DATA name the shared data where it names nothing else."""
    if SHARED.is_dir():
        os.environ.setdefault("WEFT_DATA", str(SHARED))


@cache
def _table(name: str) -> Table:
    options = {"cache_dir": os.environ.get("WEFT_CACHE")} if name == "newsgroups" else {}
    return load(name, **options)


def mnist(parties: int) -> Split:
    """The digit 3 against the rest, in quadrants."""
    table = _table("mnist")
    binary = replace(table, labels=np.where(table.labels == 3, 1, -1))
    return SPLITS["quadrants"](binary, parties=parties)


def dealt(name: str, groups: int = 12) -> Split:
    """As many groups of samples as parties in each."""
    return SPLITS["dealt"](_table(name), k=groups, q=groups)


def grid(name: str, k: int, q: int) -> Split:
    """All classes, k even groups of samples × q of features."""
    return SPLITS["grid"](_table(name), k=k, q=q)
