"""Two runs whose bins differ at one sample: their difference would be its row.

Whoever submits a study chooses where bins begin, and thereby how columns are called.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.data import Tile
from weft.data.columns.column_rules import ColumnRule
from weft.data.columns.raw_column_cells import DeclaredColumns, NumberCells
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.privacy.ledger.earlier_column_rules import RuleMemory
from weft.privacy.ledger.earlier_samples import Attendance
from weft.privacy.ledger.ledger_contents import LedgerContents
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

ROWS = 300
RNG = np.random.default_rng(5)
INCOME, NORTH, SOUTH = RNG.lognormal(10, 1, ROWS), *RNG.normal(size=(2, ROWS, 2))
LABELS = (RNG.normal(size=ROWS) > 0).astype(int)
IDS = [f"s{row}" for row in range(ROWS)]
#: The sample between the two edges.
CHOSEN = int(np.argsort(INCOME)[150])
EDGES = (float(INCOME[CHOSEN]), float(INCOME[CHOSEN]) + 1e-6)
SETTINGS = Settings(lam=1.0, loss="squared", solver="sealed", gap=0.5, second_moments=("gram",))


def declared(edge):
    """North's tile, with its third column in two bins."""
    rule, cells = ColumnRule(bins=[edge]), NumberCells(INCOME)
    columns = DeclaredColumns({"income": rule}, {"income": cells})
    return replace(Tile.make(IDS, ["dose", "lab"], NORTH), declared=columns)


def renamed(edge):
    """The same, where the party itself makes the upper bin a column, with the edge in its name."""
    block = np.column_stack([NORTH, edge <= INCOME])
    return Tile.make(IDS, ["dose", "lab", f"income from {edge!r}"], block)


def moments(tile, ledger):
    """Products of the upper bin with dose, lab, s0 and s1, as readers of the model have them."""
    tiles = {"north": [tile], "south": [Tile.make(IDS, ["s0", "s1"], SOUTH, LABELS)]}
    terms = Terms(allow_second_moments=True, allow_rare_pairs=True, allow_site_statistics=True)
    how = Preprocessing(intercept=False, scaling="none")
    found = Federation(tiles, how, terms=terms, ledger=ledger).train(SETTINGS).second_moments
    names = found.names.astype(str).tolist()
    last = max(place for place, name in enumerate(names) if name.startswith("income"))
    return found.gram[last, [names.index(name) for name in ("dose", "lab", "s0", "s1")]]


def test_an_edge_is_not_moved_past_a_sample(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path)
    first = moments(declared(EDGES[0]), ledger)
    with pytest.raises(WeftError, match="north refuses to train on column income by another rule"):
        moments(declared(EDGES[1]), ledger)
    monkeypatch.setattr(RuleMemory, "differs", lambda *_, **__: False)
    found = first - moments(declared(EDGES[1]), ledger)
    np.testing.assert_allclose(found, [*NORTH[CHOSEN], *SOUTH[CHOSEN]], atol=1e-4)


def test_a_column_under_another_name_hides_no_changed_sample(tmp_path):
    moments(renamed(EDGES[0]), Ledger(tmp_path))
    with pytest.raises(WeftError, match="so few of its samples changed"):
        moments(renamed(EDGES[1]), Ledger(tmp_path))


@pytest.mark.parametrize(
    ("rules", "samples", "refused"),
    [
        ({"a": b"bins 2", "b": b""}, range(50), ("a",)),
        ({"a": b"", "b": b""}, range(50), ("a",)),
        ({"a": b"bins 1", "b": b"clip"}, range(50), ("b",)),
        ({"a": b"bins 2", "b": b"clip"}, range(30, 100), ("a", "b")),
        # The same as before, also with a column more or less; and samples that nobody trained on.
        ({"a": b"bins 1", "b": b""}, range(50), None),
        ({"a": b"bins 1", "c": b"levels"}, range(50), None),
        ({"a": b"bins 2", "b": b"clip"}, range(50, 100), None),
    ],
)
def test_rules_stay_whatever_the_cells_are(rules, samples, refused):
    def coming(rules, samples):
        ids = np.array([f"s{n}" for n in samples], dtype=object)
        some = np.ones(len(ids), np.int32)
        same = some.astype(np.uint64)
        return Attendance(ids, some, same, same, np.arange(len(ids)), rules)

    pages = LedgerContents.new()
    pages.remember(coming({"a": b"bins 1", "b": b""}, range(50)), "2026-01-01T10:00")
    change = pages.change(coming(rules, samples), 10)
    assert (None if change is None else change.ruled) == refused
