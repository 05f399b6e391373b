"""The fast solvers against rounding, breakdowns halfway and a coordinator that asks too much."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from unittest.mock import patch

import numpy as np
import pytest
from scipy.optimize import linprog

from covering import before_release, cover
from weft.data import SPLITS, Table, load
from weft.errors import ProtocolError, WeftError
from weft.federation.local_federation import Federation
from weft.protocol import LocalChannel, fields_of, phase_named
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.messages import FOLLOW, SEARCH, SPREAD
from weft.solvers.subspace.party_sample_values import Rows

SOLVERS = [("cutting-planes", "hinge"), ("lbfgs", "logistic"), ("newton-cg", "logistic")]


def digits(n: int = 60) -> Table:
    table = load("digits")
    block = np.asarray(table.block, float)[:n]
    block /= np.linalg.norm(block, axis=1).max()
    labels = np.where(table.labels[:n] >= 5, 1, -1)
    return Table(table.ids[:n], table.features, block, labels, table.task, "digits")


def settings_of(solver: str, loss: str, **more) -> Settings:
    return Settings(**{"lam": 1e-3, "gap": 1e-4, "loss": loss, "solver": solver, **more})


# ── rounding ─────────────────────────────────────────────────────────────────────────────────


@cover(("solver", "loss", "lam"), [(*s, lam) for s in SOLVERS[:2] for lam in (1e-5, 1e-7, 1e-9)])
def test_no_rounding_lifts_the_bound_above_the_optimum(solver, loss, lam):
    """Few samples, more features, rank four, entries of a hundred: inner products of nearly
    parallel vectors are all rounding. The bound is then poor, but it stays a bound."""
    random = np.random.default_rng(3)
    block = 100.0 * random.standard_normal((60, 4)) @ random.standard_normal((4, 70))
    y = np.where(random.random(60) < 0.5, 1.0, -1.0)
    ids = np.array([f"i{i}" for i in range(60)], dtype=object)
    names = np.array([f"x{j}" for j in range(70)], dtype=object)
    table = Table(ids, names, block, y.astype(int), "classification", "flat")
    split = SPLITS["grid"](table, k=1, q=3)
    settings = settings_of(solver, loss, lam=lam, gap=1e-3, iterations=60, cipher="plain")
    certificate = Federation(split.parties).train(settings).result.certificate
    assert certificate is not None
    # No P lies below P*: here is one near it, from a linear programme or from long descent.
    good = _good(block, y)
    upper = lam / 2 * good @ good
    z = y * (block @ good)
    upper += (np.maximum(0, 1 - z) if loss == "hinge" else np.logaddexp(0, -z)).mean()
    assert certificate.dual[0] <= upper * (1 + 1e-9)
    assert certificate.dual[0] <= certificate.primal[0] * (1 + 1e-9)


def _good(block, y):
    """The w of least hinge loss."""
    n, m = block.shape
    rows = y[:, None] * block
    found = linprog(
        np.r_[np.zeros(2 * m), np.ones(n) / n],
        A_ub=-np.hstack([rows, -rows, np.eye(n)]),
        b_ub=-np.ones(n),
        bounds=[(0, None)] * (2 * m + n),
        method="highs",
    )
    return found.x[:m] - found.x[m : 2 * m]


# ── breakdowns ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("solver", "loss"), SOLVERS)
@pytest.mark.parametrize("method", ["duals_at", "feature_sums", "append"])
@pytest.mark.parametrize("call", [4, *before_release(9)])
def test_a_party_that_broke_down_halfway_does_not_go_on_with_half_a_step(
    solver, loss, method, call
):
    split = SPLITS["grid"](digits(), k=1, q=3)
    original, calls = getattr(Rows, method), [0]

    def fails_once(self, *arguments):
        calls[0] += 1
        if calls[0] == call:
            raise MemoryError
        return original(self, *arguments)

    settings = settings_of(solver, loss, cipher="plain", patience=2.0)
    with (
        patch.object(Rows, method, fails_once),
        pytest.raises(ProtocolError, match="broke down in the middle"),
    ):
        Federation(split.parties).train(settings)


# ── questions that should not be answered ────────────────────────────────────────────────────


@contextmanager
def at(phase, ask, *, turn=1, before=False):
    """Let ``ask(question, asked)`` talk to a party as a phase comes the ``turn``-th time.

    That is after its answer, or ``before`` it is asked. ``asked`` is what it is asked, as it
    travels. ``question(name, fields)`` puts another question as a new request.
    """
    exchange, done, turns = LocalChannel.exchange, [], [0]

    def watched(channel, requests):
        request = requests[0]
        turns[0] += request.phase is phase
        now = request.phase is phase and turns[0] == turn and not done
        out = None if now and before else exchange(channel, requests)
        if now:
            party = next(iter(request.messages))
            asked = fields_of(request.messages[party])
            rounds = count(asked["round"] + (not before))

            def question(name, fields):
                other = phase_named(f"subspace.{name}")
                message = other.read_request({**fields, "round": next(rounds)})
                return channel._handlers[party](other, message)

            ask(question, asked)
            done.append(True)
            raise WeftError("the party was asked; the run is of no use any more")
        return out

    with patch.object(LocalChannel, "exchange", watched):
        yield done


def train_quietly(settings, parties=None):
    """The run ends where the party was asked: it has been disturbed."""
    try:
        Federation(parties or SPLITS["grid"](digits(), k=1, q=3).parties).train(settings)
    except WeftError:
        return


#: What is added to a question of the run, or put in its place, for a sound one with all fields.
SOUND = {
    "spread": {"by_rows": True, "fold.coefficients": np.zeros((2, 1)), "fold.keep": np.array([1])},
    "point": {"point": np.zeros((2, 1)), "model.number": 0, "model.mixture": np.zeros((2, 1))},
    "search": {"ascent.weights": np.zeros((1, 1)), "ascent.curvature": np.ones(1)},
    "gather": {"by_rows": False, "moved": np.array([[1.0], [0.0]]), "at": np.zeros((1, 1))},
    "keep": {"point": np.zeros((2, 1)), "model": 0},
    "fallback": {
        "number": 1,
        "lam": 1.0,
        "weights": np.zeros((1, 1)),
        "point": np.zeros((2, 1)),
        "rows": np.ones(1, bool),
        "columns": np.ones(1, bool),
    },
}


def sound(phase, asked, **changes):
    """The fields of a sound question: the one that was to come, or a new one after it."""
    if phase in ("spread", "search"):
        return {**asked, **SOUND[phase], **changes}
    numbered = {"iteration": asked["iteration"]}
    if phase not in ("keep", "fallback"):
        numbered["serial"] = asked["serial"] + 1
    return {**numbered, **SOUND[phase], **changes}


def disturb(ask, phase="point"):
    """Train with cutting planes under no cipher, and ask a party when ``phase`` may come."""
    moment = {
        "spread": {"phase": SPREAD, "turn": 2, "before": True},
        "search": {"phase": SEARCH, "before": True},
    }.get(phase, {"phase": SPREAD})
    with at(ask=ask, **moment) as done:
        train_quietly(settings_of("cutting-planes", "hinge", cipher="plain", when_missing="hyfdca"))
    assert done


def test_a_repeated_question_must_be_the_same_one():
    def ask(question, asked):
        steps = np.linspace(0, 1, 20)
        finer = np.stack([1 - steps, steps], axis=1)[:, :, None]
        with pytest.raises(ProtocolError, match="asked again in other words"):
            question("search", {**asked, "steps": finer})
        same = {"iteration": asked["iteration"], "serial": asked["serial"]}
        for phase, fields in (
            *((phase, SOUND[phase]) for phase in ("spread", "point", "gather")),
            ("follow", {"width": 1, "question": b""}),
            ("close", {}),
        ):
            with pytest.raises(ProtocolError, match="comes after phase"):
                question(phase, {**fields, **same})
        # The same question is answered again, with the same scalars under other pads.
        assert question("search", asked).losses

    with at(SEARCH, ask) as done:
        train_quietly(settings_of("lbfgs", "logistic", cipher="pad"))
    assert done


WRONG = [
    np.zeros((1, 2)),
    np.zeros((2, 3, 4)),
    np.array(["a"]),
    np.full((2, 1), np.nan),
    np.zeros((2, 1), np.int64),
    "text",
    7,
]
QUESTIONS = [
    ("spread", "fold.coefficients"),
    ("spread", "by_rows"),
    ("search", "moved"),
    ("search", "point"),
    ("search", "steps"),
    ("search", "at"),
    ("search", "ascent.weights"),
    ("search", "ascent.curvature"),
    ("search", "ascent.basis"),
    ("search", "of"),
    ("gather", "moved"),
    ("gather", "at"),
    ("gather", "direction"),
    ("point", "point"),
    ("point", "model.mixture"),
    ("point", "model.number"),
    ("keep", "point"),
    ("fallback", "weights"),
    ("fallback", "rows"),
]


@cover(("phase", "field", "wrong"), [(*asked, wrong) for asked in QUESTIONS for wrong in WRONG])
def test_a_malformed_question_gets_a_sentence(phase, field, wrong):
    def ask(question, asked):
        with pytest.raises(ProtocolError) as caught:
            question(phase, sound(phase, asked, **{field: wrong}))
        assert field in str(caught.value)
        assert len(str(caught.value)) < 300

    disturb(ask, phase)


@pytest.mark.parametrize("phase", SOUND)
def test_the_same_questions_are_answered_where_nothing_is_malformed(phase):
    def ask(question, asked):
        question(phase, sound(phase, asked))

    disturb(ask, phase)


@pytest.mark.parametrize("keep", [[0, 1], [1, 1], [5], [-1]])
def test_vectors_that_are_not_there_cannot_be_kept(keep):
    def ask(question, asked):
        with pytest.raises(ProtocolError, match="keep"):
            question("spread", sound("spread", asked, **{"fold.keep": np.array(keep)}))

    disturb(ask, "spread")


def test_no_table_of_losses_is_finer_than_agreed():
    def ask(question, asked):
        with pytest.raises(ProtocolError, match="33 steps"):
            question("search", sound("search", asked, steps=np.zeros((33, 2, 1))))

    disturb(ask, "search")


def test_vectors_that_are_told_later_cannot_be_completed_before_and_again_after():
    """Whoever could would choose among totals of two requests."""

    def ask(question, asked):
        spread = {"iteration": asked["iteration"], "serial": asked["serial"], "by_rows": False}
        with pytest.raises(ProtocolError, match="no vector is under way"):
            question("spread", spread)

    *all_labels, (name, tiles) = SPLITS["grid"](digits(), k=1, q=3).parties.items()
    parties = {**dict(all_labels), name: tuple(replace(tile, labels=None) for tile in tiles)}
    with at(FOLLOW, ask, before=True) as done:
        train_quietly(settings_of("lbfgs", "logistic", cipher="plain"), parties)
    assert done
