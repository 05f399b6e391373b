"""One party's own change of losses, from points that were frozen in different iterations.

Three parties by rows, federated averaging, careful terms. Losses at a point are told once an
iteration, under masks that name it. A coordinator that freezes a new point at one party alone, and
asks all for losses in that iteration's name, has a total in which nothing but that party's losses
is new.
"""

from __future__ import annotations

import pytest
from scene import by_rows, table_of
from staging import Stage, scalars

from weft.errors import ProtocolError
from weft.solvers.rounds.point_certificate import PointParty
from weft.solvers.run_settings import Settings

SETTINGS = Settings(
    lam=0.01, loss="logistic", solver="fedavg", gap=None, iterations=6, certify_every=2
)


def own_change():
    """p1's losses at its second point less those at its first: as it was read, and as it is."""
    tiles = by_rows(table_of("breast_cancer", 120), 3)
    stage = Stage(tiles, SETTINGS, "measure.products", 2, by="p1")
    first = {name: stage.last("measure.losses", name) for name in stage.names}
    frozen, _ = stage.last("measure.products", "p1")
    now = {"round": frozen["round"] + 1, "iteration": frozen["iteration"]}
    told = {
        name: stage.handlers[name]("measure.losses", {**asked, **now})
        for name, (asked, _) in first.items()
    }
    before = scalars({name: reply for name, (_, reply) in first.items()}, "losses")
    half = stage.half("p1")

    def loss(iteration):
        z = half.table.products(None, half.measured.weights[iteration])
        return half.loss.value(z, half.labels)[half.view.counted_rows].sum() * half.sample_weight

    true = loss(frozen["iteration"]) - loss(first["p1"][0]["iteration"])
    return scalars(told, "losses")[0] - before[0], true


@pytest.mark.release
def test_one_partys_change_of_losses_follows_from_stale_points(monkeypatch, record):
    monkeypatch.setattr(PointParty, "_insist_on_frozen", lambda point, iteration: None)
    found, true = own_change()
    assert abs(true) > 1e-4
    assert found == pytest.approx(true, abs=1e-12)
    record("55", "unguarded", f"p1's own change of losses, error {abs(found - true):.0e}")


def test_losses_of_a_point_that_was_frozen_in_another_iteration_are_refused(record):
    with pytest.raises(ProtocolError, match="is not that of the point that was frozen"):
        own_change()
    record("55", "guarded", "refused")
