"""Sparse columns, one plain run, guards on: rare words carry the dual variable of their document.

The sum of a column that one foreign document has moves in proportion to its α. So p1 groups columns
that move alike over the vectors of a run, and reads, document by document, the words that it alone
has, their counts and its class. Documents are drawn from Zipf's law, 150 words each.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from scene import Diary, Run, run

import weft.federation.training_data as training_data
from weft.data import Tile
from weft.guards import Terms
from weft.solvers.run_settings import Settings

DOCUMENTS, WORDS, LENGTH = 240, 4000, 150
#: Columns that must move alike before p1 calls them a document.
ALIKE = 5


class Corpus:
    """Documents of two classes at three parties, and p1's attack on the other two."""

    def __init__(self) -> None:
        draws = np.random.default_rng(0)
        share = 1.0 / np.arange(1, WORDS + 1)
        share /= share.sum()
        self.counts = draws.multinomial(LENGTH, share, DOCUMENTS).astype(float)
        self.labels = np.arange(DOCUMENTS) % 2
        # A few frequent words tell the classes apart.
        self.counts[self.labels == 1, 20:40] += 1
        self.unit = float(np.linalg.norm(self.counts, axis=1).max())
        self.parts = np.array_split(draws.permutation(DOCUMENTS), 3)
        ids = np.array([f"d{i}" for i in range(DOCUMENTS)], dtype=object)
        names = np.array([f"w{i}" for i in range(WORDS)], dtype=object)
        self.tiles = {
            f"p{k + 1}": (
                Tile.make(
                    ids[rows], names, sp.csr_array(self.counts[rows] / self.unit), self.labels[rows]
                ),
            )
            for k, rows in enumerate(self.parts)
        }

    def run(self, solver: str, loss: str) -> tuple[Run, np.ndarray, list[int]]:
        """A run, what p1 sees of the others' columns, and which words they are."""
        diary = Diary(vectors)
        how = Settings(lam=1e-3, solver=solver, loss=loss, gap=1e-2, iterations=12)
        found = run(self.tiles, how, Terms(), diaries={"p1": diary})
        (tile,), (slots,) = found.party("p1").data.tiles, found.party("p1").view.tile_columns
        words = np.empty(len(slots), int)
        words[slots] = [int(name[1:]) for name in tile.features.tolist()]
        return found, np.hstack(diary.all("rest")) * self.unit, words.tolist()

    def documents(self, seen: np.ndarray, words: list[int], first: float) -> tuple[int, int, int]:
        """How many documents p1 reads; how many of their words' counts and classes are right."""
        count = seen[:, 0] / first
        there = np.flatnonzero(np.abs(count) > 0.5)
        groups: dict[tuple[float, ...], list[int]] = {}
        for column in there.tolist():
            key = tuple(np.round(seen[column] / seen[column, 0], 4).tolist())
            groups.setdefault(key, []).append(column)
        rest = np.concatenate(self.parts[1:])
        read = counts = classes = 0
        for columns in groups.values():
            mine = [np.flatnonzero(self.counts[rest, words[c]]) for c in columns]
            owner = Counter(int(s[0]) for s in mine if len(s) == 1)
            if len(columns) < ALIKE or not owner or owner.most_common(1)[0][1] < 0.9 * len(columns):
                continue
            document = rest[owner.most_common(1)[0][0]]
            read += 1
            right = [abs(abs(count[c]) - self.counts[document, words[c]]) < 0.01 for c in columns]
            counts += int(np.mean(right) > 0.9)
            classes += int((np.median(count[columns]) > 0) == (self.labels[document] == 1))
        return read, counts, classes


def vectors(party, phase, message, opened):
    """The others' part of every vector."""
    if phase != "subspace.spread":
        return {}
    (total,) = (values for kind, _, values in opened if kind == "v")
    return {"rest": total * party.view.n_samples - party._half.samples.partial}


@pytest.fixture(scope="module")
def corpus():
    return Corpus()


CASES = [("lbfgs", "logistic", 0.5), ("cutting-planes", "hinge", 1.0)]


@pytest.mark.parametrize(
    ("solver", "loss", "first"), [pytest.param(*CASES[0], marks=pytest.mark.release), CASES[1]]
)
def test_words_of_single_documents_show_unless_rare_columns_are_left_out(
    corpus, monkeypatch, record, solver, loss, first
):
    """Columns are left out before any solver begins: one is tried with every change."""
    with monkeypatch.context() as patch:
        nothing = lambda block, group, least: np.zeros((group.max() + 1, block.shape[1]), bool)  # noqa: E731
        patch.setattr(training_data, "rare_columns", nothing)
        _, seen, words = corpus.run(solver, loss)
    foreign = 2 * DOCUMENTS // 3
    read, counts, classes = corpus.documents(seen, words, first)
    assert read > foreign / 2
    assert counts == classes == read
    told = f"{solver}: words, counts and class of {read} of {foreign} documents"
    record("19", "unguarded", told)

    found, seen, words = corpus.run(solver, loss)
    assert corpus.documents(seen, words, first)[0] == 0
    # Whatever p1 sees of a column is a sum over enough documents of p2, and of p3.
    there = [words[c] for c in np.flatnonzero(np.abs(seen).max(axis=1) > 1e-9)]
    for rows in corpus.parts[1:]:
        support = (corpus.counts[rows][:, there] > 0).sum(axis=0)
        other = corpus.counts[np.setdiff1d(np.concatenate(corpus.parts[1:]), rows)][:, there] > 0
        assert ((support >= 10) | (other.sum(axis=0) >= 10)).all()
    assert found.trained.holdings.rare_cells > 0
    assert any(
        "are left out unsaid, if there are any" in note for note in found.trained.result.notes
    )
    assert found.trained.result.certificate.gap <= 1e-2
    record("19", "guarded", f"{solver}: 0 documents, {len(there)} of {WORDS} words are summed")
