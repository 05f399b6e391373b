"""Federations under guards, what their parties put into sums, and an outside judge.

Not a test itself. Rosters here come from ids in the clear, as no coordinator has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import msgspec
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from weft.data import Split, Table, Tile, load
from weft.federation import local_federation as federation_module
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.party import Party
from weft.guards import OPEN, Terms
from weft.matching.build_holdings import Holding, build_holdings
from weft.matching.holding_map import HoldingMap
from weft.protocol import LocalChannel, fields_of
from weft.solvers.run_settings import Settings

#: Careful terms, but for the cipher: sums are the same, and faster.
PLAIN = Terms(ciphers=("plain",))


@cache
def table_of(name: str, rows: int | None = None, classes: int = 2) -> Table:
    """The first rows of a real table, standardised and of norm at most one.

    With two classes, digits are even or odd.
    """
    whole = load(name)
    block = np.array(whole.block, np.float64)[:rows]
    varies = block.std(axis=0) > 0
    block, labels = block[:, varies], whole.labels[:rows]
    block = (block - block.mean(axis=0)) / block.std(axis=0)
    block /= np.linalg.norm(block, axis=1).max() * (1 + 1e-9)
    if name == "digits" and classes == 2:
        labels = labels % 2
    features = whole.features[varies]
    return Table(whole.ids[:rows], features, np.ascontiguousarray(block), labels, whole.task, name)


def tile_of(table: Table, rows=slice(None), columns=slice(None), *, labelled: bool = True) -> Tile:
    """A part of a table."""
    block = np.ascontiguousarray(table.block[rows][:, columns])
    labels = table.labels[rows] if labelled else None
    return Tile.make(table.ids[rows], table.features[columns], block, labels)


def checkerboard(table: Table) -> Split:
    """p1 has two fields that touch at a corner, four others quarters of the rest."""
    r, c = (np.array_split(np.arange(size), 4) for size in (table.n, table.m))
    up, down = np.concatenate(r[:2]), np.concatenate(r[2:])
    left, right = np.concatenate(c[:2]), np.concatenate(c[2:])
    tiles = {"p1": (tile_of(table, up, left), tile_of(table, down, right))}
    for k, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        fields = (tile_of(table, r[i], c[2 + j]), tile_of(table, r[2 + i], c[j]))
        tiles[f"p{k + 2}"] = fields
    return Split(tiles, "mean", "checkerboard", table.task, table.name)


# ── rosters ───────────────────────────────────────────────────────────────────────────────────


def roster_of(
    tiles: Mapping[str, Sequence[Tile]], terms: Terms = OPEN, *, bias: bool = False, **options
) -> HoldingMap:
    """Who holds what: equal names get equal tokens."""

    def numbered(names):
        codes, _ = pd.factorize(np.concatenate(names))
        parts = np.split(codes.astype(np.uint64), np.cumsum([len(part) for part in names])[:-1])
        return iter(parts)

    every = [tile for held in tiles.values() for tile in held]
    rows, columns = numbered([t.ids for t in every]), numbered([t.features for t in every])
    holdings = []
    for held in tiles.values():
        mine = tuple(next(rows) for _ in held)
        theirs = tuple(next(columns) for _ in held)
        holdings.append(
            Holding(
                rows=mine,
                columns=theirs,
                labelled=tuple(tile.labelled for tile in held),
                labels=tuple(np.zeros(tile.n, np.uint64) for tile in held),
                loose=np.concatenate(mine),
                bare=np.zeros(0, np.uint64),
                similar=np.concatenate(theirs),
            )
        )
    return build_holdings(
        list(tiles), holdings, bias=bias, confirm_separate_ids=True, terms=terms, **options
    )


def cohorts_of(holdings: HoldingMap, tiles: Mapping[str, Sequence[Tile]]) -> dict[str, int]:
    """The row cohort of every sample that takes part."""
    every = [tile for held in tiles.values() for tile in held]
    found = {}
    for tile, cohorts in zip(every, holdings.rows.tile_cohorts, strict=True):
        for sample, cohort in zip(tile.ids.tolist(), cohorts.tolist(), strict=True):
            if cohort >= 0:
                assert found.setdefault(sample, cohort) == cohort
    return found


# ── runs ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def watched(
    after: Callable[[Party, str, dict, dict], None] | None = None,
    before: Callable[[Party, str, dict], dict] | None = None,
) -> Iterator[None]:
    """Look at every party of the federations made here when it has answered a phase.

    ``before`` may give it another message, or raise what a network would.
    """

    class Watched(LocalChannel):
        def __init__(self, handlers, **options):
            super().__init__({name: seen(call) for name, call in handlers.items()}, **options)

    def seen(call):
        def answer(phase, message):
            if before is not None:
                message = before(call.__self__, phase.name, message)
            reply = call(phase, message)
            if after is not None:
                after(call.__self__, phase.name, fields_of(message), fields_of(reply))
            return reply

        return answer

    with patch.object(federation_module, "LocalChannel", Watched):
        yield


def train(split, settings: Settings, terms: Terms = PLAIN, preprocessing=None, **options):
    """Train on a split, or on tiles."""
    tiles = split.parties if isinstance(split, Split) else split
    overlap = split.overlap if isinstance(split, Split) else "mean"
    how = msgspec.structs.replace(preprocessing or Preprocessing(), overlap=overlap)
    federation = Federation(tiles, how, terms=terms, **options)
    return federation, federation.train(settings)


def local_rows(party: Party) -> dict[str, int]:
    """The local row of every sample of a party."""
    found = {}
    for tile, rows in zip(party.data.tiles, party.view.tile_rows, strict=True):
        for sample, row in zip(tile.ids.tolist(), rows.tolist(), strict=True):
            if row >= 0:
                found[sample] = row
    return found


def trained_table(federation: Federation, table: Table) -> Table:
    """The table that a federation trained on: without what was too rare."""
    row, column = ({name: k for k, name in enumerate(names.tolist())} for names in _names(table))
    block, kept = np.zeros(table.block.shape), np.zeros(table.n, bool)
    for party in federation.parties.values():
        mine = party.data.table.compressed().toarray()
        columns = np.zeros(party.view.n_columns, int)
        for tile, slots in zip(party.data.tiles, party.view.tile_columns, strict=True):
            columns[slots] = [column[name] for name in tile.features.tolist()]
        for sample, slot in local_rows(party).items():
            block[row[sample], columns] += mine[slot]
            kept[row[sample]] = True
    return Table(table.ids[kept], table.features, block[kept], table.labels[kept], table.task)


def _names(table: Table) -> tuple[np.ndarray, np.ndarray]:
    return table.ids, table.features


# ── changes ───────────────────────────────────────────────────────────────────────────────────


def effective(change: np.ndarray) -> float:
    """(Σ|d|)² / Σd²: how many samples a change is worth."""
    square = float((change**2).sum())
    return float(np.abs(change).sum()) ** 2 / square if square else 0.0


def check_apart(columns: np.ndarray, least: int) -> None:
    """Any two vectors of an atom (samples × vectors), or one and zero, are equal or differ in what
    is worth enough samples."""
    every = np.unique(np.hstack([np.zeros((len(columns), 1)), columns]), axis=1)
    for at in range(every.shape[1]):
        change = every[:, at + 1 :] - every[:, at : at + 1]
        worth = np.abs(change).sum(axis=0) ** 2 / (change**2).sum(axis=0)
        assert (worth >= least * (1 - 1e-6)).all(), f"a difference of {worth.min():.3g} samples"


def check_steps(columns: np.ndarray, least: int) -> None:
    """From one vector of a problem to the next, nothing changes or what is worth enough samples."""
    before = np.zeros(len(columns))
    for now in columns.T:
        worth = effective(now - before)
        assert worth == 0.0 or worth >= least * (1 - 1e-6), f"a change of {worth:.3g} samples"
        before = now


# ── the judge ─────────────────────────────────────────────────────────────────────────────────


def optimum(table: Table, loss: str, lam: float, positive) -> float:
    """P* of one class against the rest, by liblinear or Newton."""
    x, y = table.block, np.where(table.labels == positive, 1.0, -1.0)
    c = 1.0 / (lam * len(y))
    if loss == "hinge":
        judge = LinearSVC(loss="hinge", C=c, fit_intercept=False, tol=1e-8, max_iter=1_000_000)
    else:
        judge = LogisticRegression(C=c, solver="newton-cholesky", fit_intercept=False, tol=1e-9)
    w = judge.fit(x, y).coef_[0]
    z = y * (x @ w)
    losses = np.maximum(1 - z, 0) if loss == "hinge" else np.logaddexp(0, -z)
    return float(lam / 2 * w @ w + losses.mean())
