"""One party's own scalars, from α of HyFDCA that each takes over from another fallback.

Three parties by rows, a fast solver that goes on with HyFDCA while a party is away, careful terms.
Nobody is away; but the coordinator begins two fallbacks, and of the second, which stands at α = 0,
all but one party are to take over α.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from scene import by_rows, table_of
from staging import FastStage, scalars

from weft.errors import ProtocolError
from weft.protocol import message_bytes
from weft.solvers.run_settings import Settings
from weft.solvers.subspace import party as subspace_party
from weft.solvers.subspace import party_hyfdca_while_one_is_away
from weft.solvers.subspace.messages import InheritRequest

HANDS_OVER = Settings(
    lam=0.01, loss="logistic", solver="lbfgs", gap=None, iterations=6, when_missing="hyfdca"
)
STAY = np.array([[1.0], [0.0]])


class Fallbacks(FastStage):
    """A run whose parties were told that somebody is away."""

    def __init__(self):
        tiles = by_rows(table_of("breast_cancer", 120), 3)
        super().__init__(tiles, HANDS_OVER, "subspace.search")
        half = self.half("p1")
        self.weights = np.zeros((len(half.rows.mixtures._held), 1))
        self.weights[0] = 1.0
        self._vectors = len(half.features.vectors)

    def begin(self, number, weights):
        """HyFDCA begins with a mixture of dual vectors."""
        self.round += 1
        common = {
            "round": self.round, **self.common, "number": number, "lam": 0.01, "weights": weights,
            "point": np.zeros((self._vectors, 1)), "v_pads.chain": np.zeros(1, np.uint64),
        }  # fmt: skip
        for name, handler in self.handlers.items():
            view = self.parties[name].view
            rows = np.zeros(int(view.row_cohort.max(initial=0)) + 1, bool)
            columns = np.zeros(int(view.column_cohort.max(initial=0)) + 1, bool)
            handler("subspace.fallback", {**common, "rows": rows, "columns": columns})

    def inherited(self, numbers):
        """Conjugates of the α that each party takes over, and its products with all vectors."""
        told = self.ask(
            "inherit", moved=STAY, by_rows=True,
            **{"inherit.number": lambda name: numbers[name], "inherit.ack": 0},
        )  # fmt: skip
        return scalars(told, "offsets"), scalars(told, "cross")


def own_scalars():
    """What stands in the total where p1 alone takes over something, and p1's own part."""
    stage = Fallbacks()
    stage.begin(1, stage.weights)
    stage.begin(2, np.zeros_like(stage.weights))
    told = stage.inherited({"p1": 1, "p2": 2, "p3": 2})
    half = stage.half("p1")
    alpha = half.rows.mixtures.mixed(stage.weights)
    true = (half.rows.offsets(half._wires.duals.on_grid(alpha)), half.rows.cross(alpha))
    return np.concatenate(told), np.concatenate([part.ravel() for part in true])


def without_the_number(message):
    """What was asked, whichever fallback it named."""
    if isinstance(message, InheritRequest):
        message = replace(message, inherit=replace(message.inherit, number=0))
    return message_bytes.told_alike(message)


def test_own_scalars_follow_where_parties_take_over_from_other_fallbacks(monkeypatch, record):
    monkeypatch.setattr(subspace_party, "told_alike", without_the_number)
    monkeypatch.setattr(party_hyfdca_while_one_is_away, "question_digest", lambda message: b"")
    found, true = own_scalars()
    error = np.abs(found - true).max()
    assert error < 1e-12
    record(
        "54", "unguarded", f"p1's own conjugates and {len(true) - 1} products, error {error:.0e}"
    )


def test_parties_that_take_over_from_other_fallbacks_tell_noise(record):
    found, true = own_scalars()
    assert np.abs(found - true).min() > 2.0**20
    record("54", "guarded", "noise, ≥ 2^20")


def test_alpha_is_taken_over_once_and_as_it_stood_then(record):
    stage = Fallbacks()
    stage.begin(1, stage.weights)
    first = dict.fromkeys(stage.names, 1)
    stage.inherited(first)
    with pytest.raises(ProtocolError, match="wants α of HyFDCA that was taken over"):
        stage.inherited(first)
    record("54", "guarded", "a second time: refused")


def test_hyfdca_does_not_begin_after_the_last_model_was_formed():
    stage = Fallbacks()
    held = len(stage.half("p1").features.vectors)
    stage.round += 1
    for name in stage.names:
        ask = {"round": stage.round, **stage.common, "point": np.zeros((held, 1)), "model": 0}
        stage.handlers[name]("subspace.keep", ask)
    with pytest.raises(ProtocolError, match="has formed its last model, and answers no more"):
        stage.begin(1, stage.weights)
