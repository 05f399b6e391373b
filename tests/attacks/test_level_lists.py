"""A coordinator that has every list of levels joined alone, to see which levels parties share.

Two parties hold the same category with 40 levels each, 25 of them the same. Honest, both learn all
55, and their columns tell nothing of whose they are. Joined alone, each party's columns are its own
levels, and equal tokens show the coordinator which of them two parties share. Unguarded, tokens are
made of names alone; with the fix, also of the list that a party was told.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from weft.data.columns.column_rules import ColumnRule
from weft.data.columns.raw_column_cells import CategoryCells, DeclaredColumns
from weft.data.tile import Tile
from weft.errors import ProtocolError
from weft.federation.column_level_agreement.messages import (
    JOIN_LEVELS,
    LIST_COLUMNS,
    TAKE_LEVELS,
    ColumnsRequest,
    JoinLevelsRequest,
    TakeLevelsRequest,
)
from weft.federation.local_federation import Federation, Preprocessing
from weft.matching.party import MatchingParty, _encoded
from weft.solvers.run_settings import Settings

HELD = {"p1": range(40), "p2": range(15, 55)}
SHARED = 25
HOW = Settings(lam=0.1, loss="squared", solver="lbfgs", gap=1e-2)


def tile(party: str) -> Tile:
    levels = tuple(f"town {number}" for number in HELD[party])
    rows = 3 * len(levels)
    cells = CategoryCells(levels, np.arange(rows) % len(levels))
    return Tile(
        np.array([f"{party} {row}" for row in range(rows)], dtype=object),
        np.array(["dose"], dtype=object),
        np.arange(rows, dtype=float)[:, None],
        np.arange(rows, dtype=float),
        party,
        DeclaredColumns({"town": ColumnRule(kind="category")}, {"town": cells}),
    )


def joined_alone(channel, company, *, confirmed) -> None:
    """Ask every party to join nothing but its own list."""
    everyone = dict.fromkeys(channel.parties, ColumnsRequest(company=company))
    replies = channel.ask(LIST_COLUMNS, everyone).insist("lying")
    asked = {
        party: JoinLevelsRequest(
            names=reply.open, counts=np.ones(1, np.int64), lists=reply.levels, confirmed=True
        )
        for party, reply in replies.items()
    }
    lists = channel.ask(JOIN_LEVELS, asked).insist("lying")
    told = {
        party: TakeLevelsRequest(names=reply.open, levels=lists[party].levels)
        for party, reply in replies.items()
    }
    channel.ask(TAKE_LEVELS, told).insist("lying")


def common_tokens(federation: Federation, *, twins: bool) -> int:
    """Columns besides the plain one that two parties seem to have in common.

    ``twins``: the run ends with two features of one name.
    """
    seen: dict[str, set[int]] = {}

    def listen(channel):
        asked = channel.exchange

        def exchange(requests):
            replies = asked(requests)
            for request, found in zip(requests, replies, strict=True):
                if request.phase.name == "match.tokens":
                    seen.update({p: set(r.columns.tolist()) for p, r in found.answered.items()})
            return replies

        channel.exchange = exchange
        return channel

    with pytest.raises(ProtocolError, match="a feature twice") if twins else nullcontext():
        federation.train(HOW, through=listen)
    return len(seen["p1"] & seen["p2"]) - 1


def test_lists_joined_alone_do_not_show_which_levels_two_parties_share(monkeypatch, record):
    def scene() -> Federation:
        return Federation(
            {party: (tile(party),) for party in HELD}, Preprocessing(confirm_separate_ids=True)
        )

    honest = scene()
    model = honest.train(HOW).model
    assert sum(str(name).startswith("town=") for name in model.features) == 55
    monkeypatch.setattr(
        "weft.federation.participation_terms_and_classes.coordinator.agree_on_columns", joined_alone
    )
    found = common_tokens(scene(), twins=True)
    assert found == 0
    record("60", "guarded", f"{found} of {SHARED} shared levels; the model is refused")
    monkeypatch.setattr(MatchingParty, "_bound", lambda self, names, of: _encoded(names))
    seen = common_tokens(scene(), twins=False)
    assert seen == SHARED
    record("60", "unguarded", f"{seen} of {SHARED} shared levels, by their tokens")
