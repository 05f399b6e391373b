"""Sites that train networks on tables of theirs, in one process. Not a test itself."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from toys import Killed, Place

from weft.crypto.keys import ephemeral_keys
from weft.data import load
from weft.guards import OPEN
from weft.network.model_saving_party import ModelSavingParty
from weft.network.site_data_keys_and_consent import SiteMember
from weft.privacy.agreement import SitePolicy
from weft.privacy.ledger.run_booking import Ledger
from weft_neural.local_federation import NeuralFederation
from weft_neural.sample_sources import TableSource
from weft_neural.settings import Block, NeuralSettings
from weft_neural.submitted_neural_task import NeuralTask

# Networks of tests are too small for more.
torch.set_num_threads(1)

#: Columns of a real table by block, and the rows and blocks of every party.
BLOCKS = {"size": slice(0, 4), "form": slice(4, 7), "edge": slice(7, 10)}
HELD = {
    "north": (slice(0, 90), ("size", "form")),
    "east": (slice(60, 150), ("form", "edge")),
    "south": (slice(130, 200), ("size", "edge")),
}


@cache
def table():
    whole = load("breast_cancer").to_tile()
    return replace(whole, ids=np.array([f"patient-{n:04d}" for n in range(whole.n)], object))


def tiles():
    """What each party has."""
    whole = table()
    columns = {name: np.arange(whole.m)[part] for name, part in BLOCKS.items()}
    return {
        party: (
            whole.rows(np.arange(whole.n)[rows]).columns(
                np.concatenate([columns[name] for name in names])
            ),
        )
        for party, (rows, names) in HELD.items()
    }


def settings(**changes):
    """A run of a second."""
    names = table().features
    options = {"hidden": [], "features": 3}
    blocks = {
        name: Block(columns=tuple(names[part].tolist()), options=options)
        for name, part in BLOCKS.items()
    }
    told = {
        "coordinator_sees": "weights", "hidden": (8,), "rounds": 6, "steps": 4, "batch": 8,
        "test_share": 0.2, "evaluate_every": 2, **changes,
    }  # fmt: skip
    return NeuralSettings(blocks=blocks, **told)


def task(chosen=None, **changes):
    return NeuralTask(
        name="a study", parties=tuple(HELD), settings=chosen or settings(),
        terms=changes.pop("terms", OPEN), **changes,
    )  # fmt: skip


#: Minibatches depend on the secret in them: the same for sites and for one process.
KEYS = ephemeral_keys(tuple(HELD))


class Mortal:
    """A party that can be told to die in the middle of its work."""

    def __init__(self, keeping):
        self._keeping, self.dies = keeping, False
        self.party = keeping._party
        self.replaying, self.close = keeping.replaying, keeping.close

    def on(self, phase, message):
        reply = self._keeping.on(phase, message)
        if self.dies:
            raise Killed
        return reply


def site_of(name, keys, folder, **changes):
    """What a site brings along; it allows neural runs."""
    told = {"tiles": tiles()[name], "policy": SitePolicy(), **changes}
    members = {other: each.identity.public for other, each in keys.items()}
    ledger = Ledger(folder, "one")
    return SiteMember(name=name, keys=keys[name], members=members, ledger=ledger, **told)


def places(folder):
    """All sites, each with a folder that outlives its processes."""
    keys = KEYS

    def maker(name):
        def make(request):
            site = site_of(name, keys, folder / name)
            party = site.open_party(request.plan, request.memory)
            return Mortal(ModelSavingParty(party, folder / name / "models" / request.run))

        return make

    return [Place(name, folder / name, maker(name)) for name in HELD]


def in_one_process(chosen, through):
    """The same run by parties in this process."""
    sources = {name: TableSource(name, held) for name, held in tiles().items()}
    return NeuralFederation(sources, device="cpu", keys=KEYS).train(chosen, through=through)


def numbers(model):
    """All numbers of a model, to the bit."""
    parts = [*model.extractors.values(), *model.classifier]
    for mean, deviation in model.scaling.values():
        parts += [mean, deviation]
    return [(part.dtype.str, part.shape, part.tobytes()) for part in parts]


@contextmanager
def threads(count):
    """PyTorch with another number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
