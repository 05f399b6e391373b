"""Who takes part, and that ``safe`` converges under every rule of taking part."""

from __future__ import annotations

import math
from typing import Any

import pytest

from covering import every_value
from weft.data import SPLITS, Split
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.solvers.run_settings import Settings

LAM = 1e-1
PARTIES = [f"r{i}c{j}" for i in (1, 2, 3) for j in (1, 2)]
#: Every party comes and goes; one iteration is a single party's.
TRACE = [PARTIES, PARTIES[:4], ["r3c1", "r1c2"], ["r2c2"], PARTIES[1:]]
RULES: dict[str, Any] = {
    "everyone": "everyone",
    "fraction": 0.5,
    "cyclic": {"cyclic": 3},
    "trace": {"trace": TRACE},
}
every_rule = pytest.mark.parametrize("rule", RULES)


def grid(tables: Any, labels: str = "all") -> Split:
    return SPLITS["grid"](tables.digits(300), 3, 2, labels=labels)


def train(split: Split, rule: str, *, record: bool = False, **settings: Any) -> Trained:
    how: dict[str, Any] = {"lam": LAM, "gap": None, "participation": RULES[rule], **settings}
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap), record=record)
    return federation.train(Settings(cipher="plain", **how))


def taking_part(trained: Trained) -> dict[int, list[str]]:
    """Per iteration, the parties that were sent weights, from the messages themselves."""
    seen: dict[int, list[str]] = {}
    for entry in trained.channel.transcript or []:
        if entry.phase in ("hyfdca.weights", "hyfdca.fused"):
            seen.setdefault(int(entry.message["iteration"]), []).append(entry.party)  # type: ignore[call-overload]
    return seen


@every_rule
def test_the_record_counts_those_who_took_part(tables: Any, rule: str) -> None:
    trained = train(grid(tables), rule, record=True, iterations=12, certify_every=100)
    seen = taking_part(trained)
    for record in trained.result.history:
        assert record.present == len(seen[record.iteration])


def test_everyone_is_every_party(tables: Any) -> None:
    history = train(grid(tables), "everyone", iterations=5).result.history
    assert [record.present for record in history] == [6] * 5


def test_a_fraction_draws_that_many_and_in_time_everyone(tables: Any) -> None:
    trained = train(grid(tables), "fraction", record=True, iterations=60, certify_every=100)
    assert {r.present for r in trained.result.history} == {math.floor(0.5 * 6)}
    seen = [names for t, names in taking_part(trained).items() if t <= 60]
    assert {name for names in seen for name in names} == set(PARTIES)
    assert len({tuple(names) for names in seen}) > 5


def test_cyclic_groups_take_turns(tables: Any) -> None:
    seen = taking_part(train(grid(tables), "cyclic", record=True, iterations=9, certify_every=100))
    assert [seen[t] for t in range(1, 10)] == [PARTIES[:2], PARTIES[2:4], PARTIES[4:]] * 3


def test_a_trace_is_followed_name_by_name_and_starts_over(tables: Any) -> None:
    seen = taking_part(train(grid(tables), "trace", record=True, iterations=10, certify_every=100))
    assert [set(seen[t]) for t in range(1, 11)] == [set(names) for names in TRACE * 2]


@every_value(rule=RULES, labels=["all", "first"])
def test_safe_converges_under_every_rule(judge: Any, tables: Any, rule: str, labels: str) -> None:
    # Every rule, and labels everywhere and at some, with a part of the samples and with all.
    iic = (0.2, 1.0)[(list(RULES).index(rule) + (labels == "first")) % 2]
    split = grid(tables, labels)
    trained = train(split, rule, iic=iic, gap=5e-3, iterations=8000, certify_every=20)
    assert trained.result.stopped.startswith("certified gap")
    problem = judge.problem("hinge", split, LAM)
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert reached <= judge.optimum(problem) * (1 + 5e-3)


@pytest.mark.parametrize("rule", ["everyone", "fraction", "cyclic"])
def test_safe_converges_on_overlapping_tiles(judge: Any, tables: Any, rule: str) -> None:
    split = SPLITS["overlapping"](tables.digits(200), 5, labels="first", seed=2)
    trained = train(split, rule, iic=0.5, gap=5e-3, iterations=8000, certify_every=20)
    assert trained.result.stopped.startswith("certified gap")
    problem = judge.problem("hinge", split, LAM)
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert reached <= judge.optimum(problem) * (1 + 5e-3)
