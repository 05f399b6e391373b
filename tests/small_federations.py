"""Small federations, a channel with faults, and the central judge for the protocol's tests."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from weft.crypto.ciphers.cipher_arguments_and_results import Incoming
from weft.data import Split, Table, Tile, pool
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.messages import START, ReleaseRequest, StartRequest
from weft.federation.release.encrypted_model_slices import join_slices
from weft.federation.release.model_header import Head
from weft.protocol import LocalChannel, fields_of
from weft.protocol.shared_fields import SumRequest
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.hyfdca import coordinator as hyfdca
from weft.solvers.run_settings import Settings
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.table_scaling_and_certificate_messages import SIZE


def make_table(n=44, m=7, classes=2, seed=0, sparse=0.0):
    """A random table with ids like 'patient-007' and features like 'feature-c'."""
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(n, m)) * (rng.random((n, m)) >= sparse)
    scores = block @ rng.normal(size=(m, max(classes, 1))) + 0.3 * rng.normal(size=(n, 1))
    if classes == 0:
        labels = scores[:, 0]
    elif classes == 2:
        labels = (scores[:, 0] > 0).astype(int)
    else:
        labels = scores.argmax(axis=1)
    tile = Tile.make(
        [f"patient-{i:03}" for i in range(n)],
        [f"feature-{chr(97 + j)}" for j in range(m)],
        block,
        labels,
    )
    task = "classification" if classes else "regression"
    return Table(tile.ids, tile.features, tile.block, tile.labels, task)


#: Rows and columns of each party: private rows, rows of two and of three, overlapping cells.
HOLDINGS = {
    "north": (slice(0, 20), slice(0, 4)),
    "east": (slice(8, 28), slice(2, 6)),
    "south": (slice(16, 36), slice(4, 7)),
    "west": (slice(32, 44), slice(0, 7)),
}


def make_patchwork(classes=2, seed=0, unlabelled=(), form=None, holdings=HOLDINGS):
    """Four parties with every kind of cohort between them; ``unlabelled`` ones lack labels."""
    table = make_table(classes=classes, seed=seed)
    tiles = {}
    for name, (rows, columns) in holdings.items():
        block = table.block[rows, columns]
        tiles[name] = (
            Tile.make(
                table.ids[rows],
                table.features[columns],
                block if form is None else form(block),
                None if name in unlabelled else table.labels[rows],
            ),
        )
    return tiles


class Faults:
    """Wraps the handlers of parties so that requests and replies get lost or damaged.

    ``plan(phase, party, call)`` says what happens to a party's call-th message of a phase:
    None, "dead" (the party never sees it), "lost" (it does, but its reply is dropped) or a
    function that damages the reply.
    """

    def __init__(self, plan):
        self.plan = plan
        self.calls = Counter()
        self.happened = Counter()

    def around(self, party, handler):
        def answer(phase, message):
            name = phase.name
            self.calls[name, party] += 1
            fault = self.plan(name, party, self.calls[name, party])
            if fault is None:
                return handler(phase, message)
            self.happened[name, party] += 1
            if fault == "dead":
                raise ConnectionError("no route to the party")
            reply = handler(phase, message)
            if fault == "lost":
                raise ConnectionError("the reply was lost")
            return phase.read_reply(fault(fields_of(reply)))

        return answer


@contextmanager
def rough_curvature():
    """ω by two steps: power iteration to a digit took a quarter of short runs not about it,
    to three digits a third.

    What ω must be is in ``test_hyfdca_safe.py``.
    """
    found = "weft.solvers.hyfdca.data_norms"
    with (
        patch(f"{found}.FEWEST_ROUNDS", 2),
        patch(f"{found}.TOLERANCE", 1.0),
        # Since it may be as much too small.
        patch(f"{found}.MARGIN", 2.5),
    ):
        yield


class Simulation:
    """A federation whose coordinator can be looked at after the run."""

    def __init__(self, tiles, settings, preprocessing=None, *, plan=None, store=None, record=False):
        self.tiles = tiles
        self.settings = settings
        self.preprocessing = preprocessing or Preprocessing()
        self.federation = Federation(tiles, self.preprocessing, store=store)
        quiet, self.holdings, self.adder, self.classes = self.federation.assemble(settings)
        self.unit, self.label = units_above(quiet, self.adder, SIZE, 2).tolist()
        self.faults = Faults(plan or (lambda phase, party, call: None))
        self.parties = self.federation.parties
        handlers = {n: self.faults.around(n, p.on) for n, p in self.parties.items()}
        self.channel = LocalChannel(handlers, record=record)
        self.width = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        self.run = None
        self.result = None
        #: What starts the solver at a party.
        self.start = StartRequest(
            settings=settings.to_json(),
            unit=self.unit,
            label=self.label,
            smallest_lam=settings.smallest_lam,
            offset=0.0,
            weight=1.0,
        )
        self.channel.ask(START, dict.fromkeys(self.parties, self.start)).insist("starting")

    def go(self, progress=None, checkpointing=None):
        """Run the coordinator, and keep its own state in ``run``."""
        simulation = self

        class Kept(hyfdca.Run):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                simulation.run = self

        with rough_curvature(), patch.object(hyfdca, "Run", Kept):
            self.result = (
                algorithm_of(self.settings.solver)
                .coordinator()
                .run(
                    self.channel,
                    self.holdings,
                    self.settings,
                    self.adder,
                    unit=self.unit,
                    label=self.label,
                    classes=self.width,
                    progress=progress,
                    checkpointing=checkpointing,
                )
            )
        return self.result

    def half(self, party):
        return self.parties[party]._half

    def settle(self):
        """Let every party take back what the coordinator never got."""
        for name in self.parties:
            self.half(name).settle(self.run.ack[name])

    def model(self):
        gone, number = self.result.gone, self.result.model_iteration
        there = [party for name, party in self.parties.items() if name not in gone]
        asked = ReleaseRequest(model=number, everything=bool(gone))
        slices = [party.training.slice_of_model(asked) for party in there]
        head = Head.of(self.settings, self.result, self.classes, list(self.parties), None)
        return join_slices(slices, head, overlapping=bool(gone))

    def judge(self):
        overlap = self.preprocessing.overlap
        bias = self.preprocessing.intercept_scaling if self.preprocessing.intercept else None
        return Judge(self.tiles, self.settings, self.classes, overlap, bias)

    def opened(self, totals):
        """The coordinator's totals as each holder reads them: integers, by local shared slot."""
        request = SumRequest(round=self.adder.advance())
        blocks = totals.blocks(self.parties)
        found = {}
        for name, party in self.parties.items():
            party._cipher.begin(request)
            count = len(totals.layout.own[name])
            found[name] = np.zeros((count, totals.width), np.int64)
            if name in blocks:
                found[name] = party._cipher.reveal(
                    Incoming(totals.kind, None, count, totals.width, blocks[name])
                )
        return found

    def alpha(self):
        """α per sample of the pooled table, as the coordinator's totals and the parties have it."""
        opened = self.opened(self.run.alpha)
        found = {}
        for name, party in self.parties.items():
            half = self.half(name)
            alpha = half.alpha.copy()
            alpha[: len(opened[name])] = half.alpha_wire._format.decode(opened[name])
            for tile, rows in zip(self.tiles[name], party.view.tile_rows, strict=True):
                for sample, row in zip(tile.ids, rows.tolist(), strict=True):
                    if row >= 0:
                        assert np.array_equal(found.setdefault(sample, alpha[row]), alpha[row])
        return found


class Judge:
    """P and D of the pooled table: what one would get with all data in one place."""

    def __init__(self, tiles, settings, classes, overlap="mean", bias=None):
        table = pool(Split(tiles, overlap, ""))
        self.table = table
        self.x = table.block if isinstance(table.block, np.ndarray) else table.block.toarray()
        if bias is not None:
            self.x = np.hstack([self.x, np.full((len(self.x), 1), bias)])
        self.loss = settings.make_loss()
        self.lam = settings.lam
        if classes is None:
            self.y = np.asarray(table.labels, float)[:, None]
        else:
            positive = classes[1:] if len(classes) == 2 else classes
            self.y = np.where(np.asarray(table.labels)[:, None] == positive, 1.0, -1.0)

    def weights(self, alpha):
        a = np.array([alpha[sample] for sample in self.table.ids])
        return a, self.x.T @ a / (self.lam * len(self.x))

    def objectives(self, alpha):
        """P(w(α)) and D(α) per class."""
        a, w = self.weights(alpha)
        half = 0.5 * self.lam * (w**2).sum(axis=0)
        primal = half + self.loss.value(self.x @ w, self.y).mean(axis=0)
        dual = -half - self.loss.conjugate(a, self.y).mean(axis=0)
        return primal, dual


@pytest.fixture(scope="session")
def table():
    return make_table


@pytest.fixture(scope="session")
def patchwork():
    return make_patchwork


@pytest.fixture(scope="session")
def simulate():
    return Simulation


@pytest.fixture(scope="session")
def quick():
    """Settings of a short run on the small federations."""

    def settings(**changes):
        base = {"lam": 0.05, "iic": 0.4, "gap": None, "iterations": 12}
        return Settings(**{**base, **changes})

    return settings
