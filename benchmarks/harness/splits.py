"""The papers' data sets, loaded once and cut as the papers cut them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from weft.data import SPLITS, Split, Table, load

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
#: Of a smoke run: samples, the side of an image, parties, and groups of samples or features.
SAMPLES, SIDE, PARTIES, GROUPS = 90, 4, 6, 3


def find_data() -> None:
    """Let WEFT_DATA name the shared data where it names nothing else."""
    if SHARED.is_dir():
        os.environ.setdefault("WEFT_DATA", str(SHARED))


class DataSets:
    """The papers' tables, cut; in a smoke run one tiny table in the place of each.

    Parameters
    ----------
    smoke
        Whether the tables, and the numbers of parties, are tiny.
    """

    def __init__(self, smoke: bool) -> None:
        self._smoke = smoke
        self._tables: dict[str, Table] = {}
        if not smoke:
            find_data()

    def mnist(self, parties: int) -> Split:
        """The digit 3 against the rest, in quadrants."""
        return SPLITS["quadrants"](self.threes(), parties=self._few(parties, PARTIES))

    def threes(self) -> Table:
        """MNIST, the digit 3 against the rest."""
        table = self.table("mnist")
        return replace(table, labels=np.where(table.labels == 3, 1, -1))

    def dealt(self, name: str, groups: int = 12) -> Split:
        """As many groups of samples as parties in each."""
        groups = self._few(groups, GROUPS)
        return SPLITS["dealt"](self.table(name), k=groups, q=groups)

    def grid(self, name: str, k: int, q: int) -> Split:
        """All classes, k even groups of samples × q of features."""
        k, q = self._few(k, GROUPS), self._few(q, GROUPS)
        return SPLITS["grid"](self.table(name), k=k, q=q)

    def table(self, name: str) -> Table:
        """All of a data set."""
        if name not in self._tables:
            self._tables[name] = self._tiny(name) if self._smoke else _load(name)
        return self._tables[name]

    def _few(self, wanted: int, most: int) -> int:
        return min(wanted, most) if self._smoke else wanted

    def _tiny(self, name: str) -> Table:
        tiny = synthetic(SAMPLES, SIDE**2, classes=3)
        block = sp.csr_array(tiny.block) if name == "newsgroups" else tiny.block
        return replace(tiny, block=block, labels=tiny.labels + 1, name=name)


def _load(name: str) -> Table:
    options = {"cache_dir": os.environ.get("WEFT_CACHE")} if name == "newsgroups" else {}
    return load(name, **options)


def synthetic(rows: int, columns: int, classes: int = 2) -> Table:
    """Normal numbers, and labels 0, 1, … that a linear model finds."""
    random = np.random.default_rng(0)
    block = random.standard_normal((rows, columns)) / np.sqrt(columns)
    labels = (block @ random.standard_normal((columns, classes))).argmax(axis=1)
    ids = np.arange(rows).astype(str).astype(object)
    features = np.array([f"x{j}" for j in range(columns)], dtype=object)
    return Table(ids, features, block, labels, task="classification", name="synthetic")
