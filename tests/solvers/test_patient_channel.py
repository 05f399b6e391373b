"""Solvers for full participation where parties come and go: slower, and the same to the bit."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from sklearn.svm import LinearSVC

from weft.data import SPLITS
from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import Terms
from weft.protocol import Nothing, Request
from weft.protocol.channel import LocalChannel
from weft.solvers.participation import Cyclic, RandomFraction, Trace
from weft.solvers.patient_channel import PatientChannel
from weft.solvers.round_trip_forecast import forecast_trips
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import catalogue_entry
from weft.solvers.subspace.messages import HERE

NAMES = ("a", "b", "c")
HOW = Preprocessing(scaling="standard", intercept=True)


def recorded(record):
    """A patient channel to three parties, and whom it asked in which order."""
    asked = []

    def handler(name):
        def answer(phase, message):
            asked.append(name)
            return phase.reply()

        return answer

    channel = LocalChannel({name: handler(name) for name in NAMES})
    return PatientChannel(channel, Trace(NAMES, record)), asked


def test_everyone_is_asked_once_when_it_is_there_and_answers_keep_the_order_of_the_question():
    channel, asked = recorded((("c",), ("c", "b"), (), ("a",)))
    replies = channel.ask(HERE, {name: Nothing() for name in NAMES})
    assert asked == ["c", "b", "a"]
    assert list(replies.answered) == list(NAMES)
    assert not replies.missing
    assert channel.meter.round_trips == 4  # the turn in which nobody came is one, too


def test_who_was_not_asked_is_not_waited_for():
    channel, asked = recorded((("a", "b"), ("c",)))
    one, two = channel.exchange(
        [Request(HERE, {"a": Nothing()}), Request(HERE, {"b": Nothing(), "a": Nothing()})]
    )
    assert asked == ["a", "b", "a"]
    assert (list(one.answered), list(two.answered)) == (["a"], ["b", "a"])
    assert channel.meter.round_trips == 1


def test_a_run_is_set_up_with_everyone():
    channel, asked = recorded((("c",), ("a", "b")))
    with channel.with_everyone():
        channel.ask(HERE, {name: Nothing() for name in NAMES})
    assert (asked, channel.meter.round_trips) == (["a", "b", "c"], 1)
    channel.ask(HERE, {name: Nothing() for name in NAMES})
    assert (asked[3:], channel.meter.round_trips) == (["c", "a", "b"], 3)


def test_a_refusal_comes_back_with_its_reason():
    def refuse(phase, message):
        raise ConfigError("no")

    channel = PatientChannel(
        LocalChannel({"a": refuse, "b": lambda phase, message: phase.reply()}),
        Cyclic(("a", "b"), 2),
    )
    replies = channel.ask(HERE, {"a": Nothing(), "b": Nothing()})
    assert replies.missing["a"].kind == "refused"
    assert list(replies.answered) == ["b"]


def test_whether_to_wait_is_settled_with_the_solver(tables, monkeypatch):
    """Sealed training would wait for all, HyFDCA in its place does not."""
    monkeypatch.setattr(catalogue_entry, "MOST_CELLS", 1)
    split = SPLITS["grid"](tables.digits(100), k=2, q=2)
    settings = Settings(
        lam=0.1, loss="logistic", solver="auto", participation=0.5, certify_every=2,
        iterations=4, gap=None,
    )  # fmt: skip

    def trips(mode):
        run = Federation(split.parties, HOW).train(msgspec.structs.replace(settings, mode=mode))
        assert run.settings.solver == "hyfdca"
        return run.result.history[-1].round_trips

    assert trips("auto") == trips("sums")


def test_a_party_that_never_comes_is_named_before_anything_is_asked(tables):
    split = SPLITS["grid"](tables.digits(100), k=2, q=1)
    first, *_ = split.parties
    settings = Settings(lam=1e-2, solver="auto", participation={"trace": [[first]]})
    messages = []
    federation = Federation(split.parties, HOW, record=messages.append)
    with pytest.raises(ConfigError, match=r"never names \w+, without whose answers.*'hyfdca'"):
        federation.train(settings)
    assert not messages


@pytest.mark.parametrize("parties", [1, 3, 9])
@pytest.mark.parametrize("fraction", [0.9, 0.5, 0.12])
def test_the_forecast_of_waiting_is_what_draws_take(parties, fraction):
    """Against draws: the mean number of turns until the first so many were all there."""
    names = tuple(f"p{i}" for i in range(9))
    took = []
    for seed in range(150):
        rule, left, turn = RandomFraction(names, fraction, seed), set(names[:parties]), 0
        while left:
            turn += 1
            left -= set(rule.present(turn))
        took.append(turn)
    spread = np.std(took) / np.sqrt(len(took))
    # Parties are drawn without replacement, which the forecast takes for independent.
    assert RandomFraction(names, fraction).turns_to_meet(parties) == pytest.approx(
        np.mean(took), abs=4 * spread + 0.12 * np.mean(took)
    )


@pytest.mark.parametrize(
    ("solver", "loss", "cipher", "rules"),
    [
        pytest.param("lbfgs", "logistic", "plain", ("everyone", 0.5), marks=pytest.mark.release),
        ("cutting-planes", "hinge", "pad", ("everyone", {"cyclic": 2})),
        ("span-newton", "logistic", "pad", ("everyone", 0.5)),
        pytest.param("span-newton", "hinge", "pad", ("everyone", 0.5), marks=pytest.mark.release),
    ],
)
def test_the_model_does_not_depend_on_who_comes_when_to_the_bit(
    tables, solver, loss, cipher, rules
):
    """Of hinge losses by Newton's method in the span, it is in ``test_rounded_hinge.py`` too."""
    split = SPLITS["grid"](tables.digits(200), k=2, q=2)
    runs = []
    for rule in rules:
        settings = Settings(
            lam=3e-2, loss=loss, solver=solver, cipher=cipher, gap=3e-2, participation=rule
        )
        runs.append(Federation(split.parties, HOW).train(settings))
    often, seldom = runs
    assert often.model.coef.tobytes() == seldom.model.coef.tobytes()
    assert often.result.certificate == seldom.result.certificate
    assert often.result.certificate.gap <= 3e-2
    assert seldom.meter.round_trips > 1.2 * often.meter.round_trips
    for rule, run in zip(rules, runs, strict=True):
        asked = msgspec.structs.replace(settings, participation=rule)
        ahead = forecast_trips(asked, run.holdings.parties, mean_square=60.0)
        assert ahead is not None
        assert ahead.likely / 3 <= run.meter.round_trips <= 3 * ahead.likely


def test_where_few_come_cuts_at_several_points_bound_what_liblinear_finds(tables):
    """Cutting planes make them where guards leave Newton's method in the span too few moments."""
    table = tables.digits(400)
    truth = np.where(table.labels == table.labels.max(), 1, -1)
    table = replace(table, labels=truth)
    terms = Terms(min_batch=2, ciphers=("pad",), allow_exposure=True, allow_pairs=True)
    often, seldom = (
        Federation(SPLITS["grid"](table, k=2, q=2).parties, Preprocessing(), terms=terms).train(
            Settings(
                lam=1e-2,
                loss="hinge",
                solver="span-newton",
                cipher="pad",
                gap=1e-2,
                participation=rule,
            )
        )
        for rule in ("everyone", 0.1)
    )
    assert any("directions come from cutting planes instead" in n for n in seldom.result.notes)
    assert often.model.coef.tobytes() == seldom.model.coef.tobytes()
    certificate = seldom.result.certificate
    assert often.result.certificate == certificate
    assert certificate.gap <= 1e-2
    judge = LinearSVC(loss="hinge", C=100 / len(truth), fit_intercept=False, tol=1e-7)
    w = judge.set_params(max_iter=10**6).fit(table.block, truth).coef_[0]
    best = np.maximum(1 - truth * (table.block @ w), 0).mean() + 0.005 * w @ w
    assert certificate.dual[0] <= best * (1 + 1e-9)
    assert certificate.primal[0] >= best * (1 - 1e-4)
