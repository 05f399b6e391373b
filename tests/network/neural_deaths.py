"""A small run that trains networks, for machines that may die in it. Not a test itself.

A module of its own, since PyTorch takes seconds to load.
"""

from __future__ import annotations

import torch
from neural_sites import numbers
from rehearsed_deaths import PARTIES, PATIENCE, SETUP, WORK, Study

from weft.guards.privacy_terms import OPEN
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.network.run_results import PRESENCE
from weft.privacy.agreement import Limits
from weft_neural.local_federation import NeuralFederation
from weft_neural.sample_sources import TableSource
from weft_neural.settings import Block, NeuralSettings
from weft_neural.submitted_neural_task import NeuralTask
from weft_neural.trained_model import NeuralModel

torch.set_num_threads(1)


def neural_study(held):
    """Two blocks of columns, which both parties have of samples of their own."""
    options = {"hidden": [], "features": 2}
    settings = NeuralSettings(
        blocks={
            "one": Block(columns=("a", "b"), options=options),
            "two": Block(columns=("c",), options=options),
        },
        coordinator_sees="weights", hidden=(3,), rounds=3, steps=2, batch=8,
        test_share=0.2, evaluate_every=2, patience=PATIENCE,
    )  # fmt: skip
    task = NeuralTask(
        name="a study", parties=PARTIES, settings=settings, terms=OPEN, setup=SETUP, timeout=WORK
    )
    return Study(task, held, OPEN, Limits(kinds=("neural",)))


def networks_of(rehearsal, reader):
    """The server's model, and those of a party."""
    folder = rehearsal.folder / "saved" / reader
    paths = rehearsal.results / "model.npz", folder / "own.npz", folder / "received.npz"
    return [numbers(NeuralModel.load(path)) for path in paths]


def networks_in_one_process(rehearsal, reader, keys):
    """The same of parties in one process, of which the same were away at the same time."""
    about = rehearsal.study
    sources = {name: TableSource(name, held) for name, held in about.held.items()}
    presence = Presence.load(rehearsal.results / PRESENCE)
    trained = NeuralFederation(sources, device="cpu", keys=keys).train(
        about.task.settings, through=lambda inner: ReplayedPresence(inner, presence)
    )
    return [
        numbers(model) for model in (trained.model, trained.own[reader], trained.received[reader])
    ]
