"""What is read from the parties' parts is the model that the totals stand for."""

import numpy as np
import pytest

from weft.data import SPLITS, load
from weft.errors import ConfigError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.protocol.channel import Among
from weft.solvers.run_settings import Settings
from weft_evaluation.assemble_weights_from_parties import Follower

SOLVERS = {
    "practical": {"solver": "hyfdca", "local": "practical", "iic": 0.3},
    "safe": {"solver": "hyfdca", "local": "safe", "iic": 0.3},
    "fedavg": {"solver": "fedavg", "iic": 0.3, "options": {"a": 0.05, "b": 1.0}},
    "hyfem": {"solver": "hyfem", "iic": 0.3, "options": {"a": 0.05, "b": 1.0, "mu": 0.5}},
    "auto": {"solver": "auto"},
}


class Watching(Among):
    """Calls with the parties that have been told w, before they move."""

    def __init__(self, channel, phase, call):
        super().__init__(channel, channel.parties)
        self._phase, self._call = phase, call

    def exchange(self, requests):
        replies = super().exchange(requests)
        for request in requests:
            if request.phase.name == self._phase:
                self._call(list(request.messages))
        return replies


class Simulation:
    """Digits at 3 × 2 parties whose values are dealt: most columns have several holders."""

    def __init__(self):
        split = SPLITS["dealt"](load("digits"), k=3, q=2)
        self.features = np.unique(np.concatenate([t.features for _, t in split.tiles()]))
        self.federation = Federation(split.parties, Preprocessing(overlap=split.overlap))

    def train(self, name, participation, iterations, **hooks):
        settings = Settings(
            lam=1e-2,
            participation=participation,
            gap=None,
            iterations=iterations,
            cipher="plain",
            **SOLVERS[name],
        )
        return self.federation.train(settings, **hooks)

    def read(self):
        return Follower(self.federation.parties, self.features, bias=False).weights()

    def told(self, names):
        """By pooled column, the weights of shared columns as some parties have them."""
        place = {name: column for column, name in enumerate(self.features.tolist())}
        found = {}
        for name in names:
            party = self.federation.parties[name]
            for tile, places in zip(party.data.tiles, party.view.tile_columns, strict=True):
                for feature, local in zip(tile.features.tolist(), places.tolist(), strict=True):
                    if local < party.view.n_shared_columns:
                        found[place[feature]] = party._half.w[local].copy()
        return found


@pytest.mark.parametrize("name", ["practical", "safe"])
def test_hyfdca_is_read_as_its_parties_are_told_it(name):
    """Half of the parties are away, and what they last put in counts."""
    simulation, apart = Simulation(), []

    def compare(names):
        w = simulation.read()
        apart.extend(np.abs(v - w[c]).max() for c, v in simulation.told(names).items())

    simulation.train(
        name, 0.5, 12, through=lambda channel: Watching(channel, "hyfdca.weights", compare)
    )
    assert len(apart) > 100
    assert max(apart) < 1e-8
    assert np.abs(simulation.read()).max() > 1e-3


@pytest.mark.parametrize("name", ["fedavg", "hyfem"])
def test_a_mean_is_read_before_the_parties_are_told_it(name):
    """They hear of an iteration's outcome in the next one in which they take part."""
    simulation, reads, apart = Simulation(), [], []

    def compare(record):
        halves = {n: p._half.iteration for n, p in simulation.federation.parties.items()}
        present = [n for n, iteration in halves.items() if iteration == record.iteration]
        if reads:
            told = simulation.told(present)
            apart.extend(np.abs(v - reads[-1][c]).max() for c, v in told.items())
        reads.append(simulation.read())

    simulation.train(name, 0.5, 12, progress=compare)
    assert len(apart) > 100
    assert max(apart) < 1e-8
    assert np.abs(reads[-1] - reads[0]).max() > 1e-2


@pytest.mark.parametrize("name", ["practical", "fedavg"])
def test_the_last_one_read_is_the_model_released(name):
    simulation, reads = Simulation(), []
    trained = simulation.train(
        name, "everyone", 5, progress=lambda record: reads.append(simulation.read())
    )
    order = np.argsort(trained.model.features)
    np.testing.assert_allclose(reads[-1], trained.model.coef.T[order], atol=1e-8)


def test_a_solver_whose_parties_hold_no_part_of_w_is_refused():
    simulation = Simulation()
    with pytest.raises(ConfigError, match="cannot be followed"):
        simulation.train("auto", "everyone", 3, progress=lambda record: simulation.read())
