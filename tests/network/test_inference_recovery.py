"""Standard errors over a network: whoever dies on the way, no bit of them is lost."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from resumed_runs import FatesByPhase, opened, run_to_end
from test_recovery_of_parties import Mortal
from toys import Place

from covering import some_of
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data.tile import Tile
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.messages import RELEASE, START
from weft.federation.party import Party
from weft.federation.preprocessing_settings import SampleColumns
from weft.guards import Terms
from weft.network import absent_parties
from weft.network import network_channel as channel
from weft.solvers.run_settings import Settings
from weft.solvers.subspace import messages

BY_SITE = Preprocessing(intercept=True, scaling="standard", reference_site="north")
TERMS = Terms(min_batch=5, allow_second_moments=True, allow_site_statistics=True)
RUN = bytes(range(16))
COMMON = Settings(
    solver="newton-cg",
    lam=0.0,
    iterations=5,
    patience=30.0,
    penalize_intercept=False,
    loss="poisson",
    inference="model",
)
#: Settings, what is done before, and whether labels are classes.
CASES = {
    "poisson": (COMMON, BY_SITE),
    "multinomial": (
        msgspec.structs.replace(COMMON, solver="lbfgs", loss="softmax", lam=0.01, iterations=4),
        Preprocessing(intercept=True, scaling="standard"),
    ),
}
#: In which a party dies in the middle of its work, and the coordinator after some letter.
PHASES = {
    *(phase.name for phase in vars(messages).values() if isinstance(phase, messages.Phase)),
    START.name,
    RELEASE.name,
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.01)
    monkeypatch.setattr(channel, "_PAUSE", 0.01)
    monkeypatch.setattr("weft.federation.release.coordinator._PAUSE", 0.01)


def tiles(family):
    rng = np.random.default_rng(8)
    block = rng.normal(size=(240, 2))
    place = np.arange(240) % 3
    labels = rng.poisson(np.exp(block @ [0.4, -0.3] + 0.5 * (place == 1))).astype(float)
    if family == "multinomial":
        labels = np.array(["few", "some", "many"])[np.minimum(labels, 2).astype(int)]
    ids = np.array([f"p{n}" for n in range(240)])
    return {
        name: [Tile.make(ids[rows], ["a", "b"], block[rows], labels[rows])]
        for number, name in enumerate(("north", "south", "west"))
        for rows in [np.flatnonzero(number == place)]
    }


def run_with_faults(folder, held, keys, settings, how):
    reader = Identity.new()

    def maker(name):
        return lambda request: Mortal(
            Party(
                name, held[name], keys=keys[name], cipher="pad", terms=TERMS,
                readers={"here": reader.public}, memory=request.memory,
                sample_columns=SampleColumns(reference_site=how.reference_site),
            )
        )  # fmt: skip

    fates = dict.fromkeys(PHASES, ("killed within", "crash after"))
    transport = FatesByPhase([Place(name, folder / name, maker(name)) for name in held], fates)
    outcome, crashes = run_to_end(folder, transport, how, settings, RUN)
    return opened(outcome, reader, keys, RUN), transport, crashes


@pytest.mark.release
@pytest.mark.parametrize("family", some_of(CASES, "poisson"))
def test_standard_errors_of_a_run_with_deaths_are_those_of_one_process_to_the_bit(tmp_path, family):
    """Also where the last step to a fit without a penalty rests on their sums, and of classes."""
    held, (settings, how) = tiles(family), CASES[family]
    keys = ephemeral_keys(tuple(held))
    released, transport, crashes = run_with_faults(tmp_path, held, keys, settings, how)
    assert crashes >= 3
    assert transport.letters[RELEASE.name] > 3
    alone = Federation(held, how, terms=TERMS).train(settings)
    here, there = released.inference.summary, alone.inference.summary
    assert here is not None
    for name in ("coef", "errors", "p", "low", "high", "distance"):
        assert getattr(here, name).tobytes() == getattr(there, name).tobytes(), name
    assert released.model.coef.tobytes() == alone.model.coef.tobytes()
    assert released.model.certificate == alone.model.certificate
