"""Iterations without messages come to the bits of those with them, whoever is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from small_federations import make_patchwork
from weft.data import SPLITS, Split, Tile, load, pool
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.federation.train_without_messages import NOTE, mover_of
from weft.guards import Terms
from weft.solvers.run_settings import Settings

#: What a record holds that does not depend on how parties were asked.
_ALIKE = (
    "iteration", "present", "round_trips", "primal", "dual", "gap", "certified_at",
    "loss_estimate", "gap_estimate",
)  # fmt: skip


def cuts() -> dict[str, Any]:
    digits = load("digits")
    return {
        "grid": (SPLITS["grid"](digits, k=3, q=3).parties, "mean"),
        "rows": (SPLITS["rows"](digits, parties=7).parties, "mean"),
        "columns": (SPLITS["grid"](digits, k=1, q=4).parties, "mean"),
        # Overlapping cells, cohorts of one to three parties.
        "patchwork": (make_patchwork(classes=3), "mean"),
        "one party": ({"alone": make_patchwork()["west"]}, "mean"),
    }


def settings(**changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "lam": 1e-3, "solver": "hyfdca", "local": "practical", "cipher": "plain", "iic": 0.1,
        "gap": None, "iterations": 30, "certify_every": 7, "participation": 0.5,
    }  # fmt: skip
    return Settings(**{**fields, **changes})


def trained(parties: Any, asked: Settings, *, quiet: bool, **options: Any) -> Trained:
    preprocessing = Preprocessing(overlap="mean")
    return Federation(parties, preprocessing, **options).train(asked, without_messages=quiet)


def calls(run: Trained, phase: str) -> int:
    """How often the parties were asked this."""
    costs = run.meter.phases.get(phase)
    return 0 if costs is None else costs.calls


def told(run: Trained) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, name) for name in _ALIKE) for row in run.result.history]


def insist_alike(with_messages: Trained, without: Trained) -> None:
    assert without.model.coef.tobytes() == with_messages.model.coef.tobytes()
    assert without.model.intercept.tobytes() == with_messages.model.intercept.tobytes()
    assert told(without) == told(with_messages)
    assert without.result.stopped == with_messages.result.stopped
    assert [note for note in without.result.notes if note != NOTE] == with_messages.result.notes
    assert NOTE in without.result.notes


@pytest.mark.parametrize(
    ("cut", "changes"),
    [
        ("grid", {}),
        ("grid", {"local": "safe", "participation": 0.9}),
        ("grid", {"gamma": 0.5, "participation": "everyone"}),
        ("grid", {"participation": {"cyclic": 3}, "local": "safe"}),
        ("rows", {"participation": 0.3}),
        ("rows", {"local": "safe", "loss": "logistic"}),
        ("columns", {"participation": {"cyclic": 2}, "iic": 1.0}),
        ("columns", {"local": "safe", "participation": "everyone"}),
        ("patchwork", {"lam": 1e-2}),
        ("patchwork", {"lam": 1e-2, "local": "safe", "participation": 0.3, "iic": 0.4}),
        (
            "patchwork",
            {
                "lam": 1e-2,
                "gap": 0.3,
                "iterations": 200,
                "local": "safe",
                "participation": "everyone",
            },
        ),
        ("one party", {"lam": 1e-2, "participation": "everyone"}),
    ],
)
def test_the_bits_are_those_with_messages(
    monkeypatch: pytest.MonkeyPatch, cut: str, changes: dict[str, Any]
) -> None:
    # So that sums taken anew against drift are part of it.
    for room in ("iterations_without_messages", "party"):
        monkeypatch.setattr(f"weft.solvers.hyfdca.{room}.RESUM_EVERY", 11)
    parties, _ = cuts()[cut]
    asked = settings(**changes)
    with_messages = trained(parties, asked, quiet=False)
    without = trained(parties, asked, quiet=True)
    insist_alike(with_messages, without)
    assert np.abs(without.model.coef).max() > 0


def test_only_certificates_take_messages() -> None:
    parties, _ = cuts()["grid"]
    asked = settings(participation="everyone", iterations=29)
    with_messages, without = (trained(parties, asked, quiet=q) for q in (False, True))
    # Iterations 1, 8, 15, 22 and 29 are certified, and the end.
    assert calls(with_messages, "hyfdca.step") == 30
    assert calls(without, "hyfdca.step") == 6
    some = settings(iterations=29)
    assert calls(trained(parties, some, quiet=True), "hyfdca.step") == 0


def test_the_certificate_holds_on_the_pooled_table() -> None:
    """P of the model, worked out centrally, is what the run certifies, and D is below it."""
    parties = make_patchwork()
    run = trained(
        parties, settings(lam=0.05, gap=0.02, iterations=600, iic=0.5, local="safe"), quiet=True
    )
    certificate = run.result.certificate
    assert certificate is not None
    assert certificate.gap <= 0.02
    table = pool(Split(parties, "mean", "overlapping"))
    y = np.where(table.labels == run.model.classes[1], 1.0, -1.0)
    order = [list(run.model.features).index(name) for name in table.features]
    w = run.model.coef[0][order]
    primal = np.maximum(1 - y * (table.block @ w), 0).mean() + 0.025 * w @ w
    assert primal == pytest.approx(sum(certificate.primal), rel=1e-6)


def test_a_reply_that_was_lost_before_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party moved in an iteration with messages, and the coordinator never heard of it."""
    parties, _ = cuts()["grid"]
    asked = settings(participation="everyone", local="safe", iterations=20)
    lost: list[str] = []

    def run(*, quiet: bool) -> Trained:
        from weft.federation.party import Party

        on, seen = Party.on, [0]
        lost.clear()

        def losing(self: Any, phase: Any, message: Any) -> Any:
            reply = on(self, phase, message)
            if phase.name == "hyfdca.step" and self.name == "r1c1" and message.iteration == 8:
                seen[0] += 1
                if seen[0] == 1:
                    lost.append(self.name)
                    raise ConnectionError("the reply was lost")
            return reply

        with monkeypatch.context() as patched:
            patched.setattr(Party, "on", losing)
            return trained(parties, asked, quiet=quiet)

    with_messages, without = run(quiet=False), run(quiet=True)
    assert lost == ["r1c1"]
    insist_alike(with_messages, without)


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({"solver": "lbfgs", "loss": "logistic", "iic": 1.0}, {}, "takes solver = 'hyfdca', and"),
        ({"local": "theory"}, {}, "takes local = 'practical' or 'safe'"),
        ({"cipher": "pad"}, {}, "set cipher = 'plain' in the place of 'pad'"),
        ({"latency": 0.1}, {}, "leave latency out"),
        ({"coordinator_sees": "weights"}, {}, "leave coordinator_sees out"),
        ({}, {"record": True}, "leaves nothing to record"),
        ({}, {"packed": True}, "leaves nothing to record"),
        ({}, {"timeout": 1.0}, "leaves nothing to record, to time"),
        (
            {},
            {"terms": Terms(ciphers=("plain",), min_batch=5)},
            "holds nothing back; set min_batch = 1",
        ),
    ],
)
def test_what_needs_messages_is_refused(
    changes: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    parties, _ = cuts()["grid"]
    with pytest.raises(ConfigError) as said:
        trained(parties, settings(**changes), quiet=True, **options)
    assert why in str(said.value)
    assert "\n" not in str(said.value)


def refusals(parties: Any, asked: Settings) -> list[str]:
    """What is said with messages, and without."""
    said = []
    for quiet in (False, True):
        with pytest.raises(WeftError) as refused:
            trained(parties, asked, quiet=quiet)
        said.append(str(refused.value))
    return said


def test_steps_that_are_too_long_are_refused_alike() -> None:
    """Proposals for shared samples, and α of private ones, which nobody else sees."""
    long = settings(lam=1e-4, loss="squared", iic=1.0, iterations=60)
    with_messages, without = refusals(make_patchwork(classes=0), long)
    assert without == with_messages
    assert without.startswith("party ")
    random = np.random.default_rng(0)
    block = np.column_stack([np.ones(40), 0.3 * random.normal(size=40), np.zeros(40)])
    block[0, 2] = 300.0
    ids = [f"s{i}" for i in range(40)]
    alone = {"a": (Tile.make(ids, ["u", "v", "w"], block, random.normal(size=40)),)}
    once = settings(
        lam=0.3, loss="squared", iic=1.0, iterations=2, certify_every=1000, participation="everyone"
    )
    with_messages, without = refusals(alone, once)
    assert without == with_messages
    assert "party a: a value of the dual variables lies outside" in without


def test_a_trace_names_nobody_twice() -> None:
    twice = settings(participation={"trace": [["north"], ["west", "east", "west"]]})
    for said in refusals(make_patchwork(), twice):
        assert "iteration 2 of the participation trace names west twice" in said


def test_parties_in_other_processes_take_messages() -> None:
    with pytest.raises(ConfigError, match="all parties in this process"):
        mover_of({})


def test_labels_at_some_holders_take_messages() -> None:
    with pytest.raises(ConfigError, match="labels at all holders of a sample"):
        trained(make_patchwork(unlabelled=("south",)), settings(), quiet=True)
