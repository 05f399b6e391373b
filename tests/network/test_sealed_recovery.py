"""Sealed training over a network: whoever dies, in whatever phase, no bit of it is lost.

The same run in one process, with what its parties drew, has the same model and certificate.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from resumed_runs import FatesByPhase, opened, run_to_end
from test_recovery_of_parties import Mortal
from toys import Place

from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data.tile import Tile
from weft.errors import PartyAway
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.messages import RELEASE
from weft.federation.party import Party
from weft.guards import OPEN
from weft.network import absent_parties
from weft.network import network_channel as channel
from weft.privacy.agreement.party_consent_checks import Consent
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import coordinator_ask_until_all_answered, messages
from weft_examples.replay_deployed_run_in_process import Drawn, repeat_run

HOW = Preprocessing(intercept=True, scaling="none")
RUN = bytes(range(16))
SETTINGS = Settings(
    solver="sealed",
    loss="logistic",
    lam=1.0,
    gap=3e-2,
    folds=2,
    class_weight={"1": 2.0},
    patience=600.0,
    second_moments=("hessian", "gram"),
)
#: Weights stand in the place of curvatures in the Hessian of a squared loss, not of this one.
SQUARED = messages.SAMPLE_WEIGHTS.name
#: The dispersion is that of gamma models.
GAMMA = {phase.name for phase in (messages.RATIOS, messages.CUT_RATIOS, messages.PEARSON)}
PHASES = {
    *(phase.name for phase in vars(messages).values() if isinstance(phase, messages.Phase)),
    RELEASE.name,
} - {SQUARED, *GAMMA}
#: What becomes of the first letters of a phase: a party dies in the middle of its work, and the
#: coordinator before or after one is worked on. Something else besides, in some phase.
ALWAYS = (("killed within", "crash before"), ("killed within", "crash after"))
ELSE = ("killed before", "killed after", "twice", "unheard", "lost")
FATES = {
    phase: (*ALWAYS[number % len(ALWAYS)], ELSE[number % len(ELSE)])
    for number, phase in enumerate(sorted(PHASES))
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    for name in ("_FIRST", "_LONGEST", "_BUSY"):
        monkeypatch.setattr(absent_parties, name, 0.01)
    monkeypatch.setattr(channel, "_PAUSE", 0.01)
    monkeypatch.setattr("weft.federation.release.coordinator._PAUSE", 0.01)
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
        monkeypatch.setattr(coordinator_ask_until_all_answered, name, 0.01)


def tiles():
    """Two hospitals with labels, of which one has other patients too, and a laboratory."""
    rng = np.random.default_rng(8)
    block = rng.normal(size=(60, 5))
    labels = (block @ rng.normal(size=5) > 0).astype(int)
    ids, names = np.array([f"p{n}" for n in range(60)]), np.array(list("abcde"))

    def part(rows, columns, labelled=True):
        given = labels[rows] if labelled else None
        return [Tile.make(ids[rows], names[columns], block[rows, columns], given)]

    return {
        "north": part(slice(0, 50), slice(0, 3)),
        "south": part(slice(40, 60), slice(0, 5)),
        "lab": part(slice(0, 50), slice(2, 5), labelled=False),
    }


def run_with_faults(folder, held, keys, memories, how=HOW, settings=SETTINGS, fates=FATES):
    reader = Identity.new()

    def maker(name):
        def make(request):
            memories[name] = request.memory
            return Mortal(
                Party(
                    name, held[name], keys=keys[name], cipher="pad", terms=OPEN,
                    readers={"here": reader.public}, memory=request.memory,
                    sample_columns=how.sample_columns,
                )
            )  # fmt: skip

        return make

    transport = FatesByPhase([Place(name, folder / name, maker(name)) for name in held], fates)
    outcome, crashes = run_to_end(folder, transport, how, settings, RUN)
    return opened(outcome, reader, keys, RUN), outcome, transport, crashes


def test_every_death_in_every_phase_ends_in_the_bits_of_one_process(tmp_path):
    held = tiles()
    keys, memories = ephemeral_keys(tuple(held)), {}
    released, outcome, transport, crashes = run_with_faults(tmp_path, held, keys, memories)
    model, moments = released.model, released.second_moments
    assert all(transport.letters[phase] > len(fates) for phase, fates in FATES.items())
    assert crashes == len(PHASES)
    memories = {name: {key: kept.get(key) for key in kept} for name, kept in memories.items()}
    drawn = Drawn(RUN, memories)
    consents = {name: Consent(name, OPEN) for name in held}
    (alone, at_once, _), repeated = repeat_run(
        held, HOW, SETTINGS, drawn, keys=keys, consents=consents
    )
    assert model.coef.tobytes() == alone.coef.tobytes()
    assert model.intercept.tobytes() == alone.intercept.tobytes()
    assert moments.gram.tobytes() == at_once.gram.tobytes()
    assert moments.hessian.tobytes() == at_once.hessian.tobytes()
    assert outcome.result.certificate == repeated.result.certificate
    assert outcome.result.certificate.gap <= 3e-2
    for one, other in zip(outcome.result.history, repeated.result.history, strict=True):
        assert (one.iteration, one.primal, one.dual) == (other.iteration, other.primal, other.dual)
    # With other draws, the last bits are others: so the comparison can fail.
    others = {
        name: {k: v[::-1] if k.startswith("sealed seed") else v for k, v in kept.items()}
        for name, kept in memories.items()
    }
    (other, theirs, _), _ = repeat_run(
        held, HOW, SETTINGS, Drawn(RUN, others), keys=keys, consents=consents
    )
    assert other.coef.tobytes() != model.coef.tobytes()
    np.testing.assert_allclose(other.coef, model.coef, atol=1e-3)
    assert theirs.hessian.tobytes() != moments.hessian.tobytes()
    np.testing.assert_allclose(theirs.hessian, moments.hessian, atol=1e-3)


def test_deaths_leave_a_hessian_that_weighs_squares_as_it_is(tmp_path):
    rng, names = np.random.default_rng(9), ["a", "b", "w"]
    block = np.column_stack([rng.normal(size=(60, 2)), rng.uniform(0.5, 2.0, 60)])
    labels, ids = block[:, 0] + rng.normal(size=60), np.array([f"p{n}" for n in range(60)])
    held = {
        name: [Tile.make(ids[rows], names, block[rows], labels[rows])]
        for name, rows in (("north", slice(0, 30)), ("south", slice(30, 60)))
    }
    how = Preprocessing(intercept=True, scaling="none", weight="w")
    asked = {"loss": "squared", "class_weight": None, "folds": 0, "second_moments": ("hessian",)}
    settings = msgspec.structs.replace(SETTINGS, **asked)
    fates = dict.fromkeys((SQUARED, messages.CELLS.name), FATES[messages.CELLS.name])
    keys, memories = ephemeral_keys(tuple(held)), {}
    released, _, transport, crashes = run_with_faults(
        tmp_path, held, keys, memories, how, settings, fates
    )
    assert crashes == len(fates)
    assert transport.letters[SQUARED] > 2
    found = released.second_moments
    # What one party sealed twice under other masks would add up to random words.
    x = np.column_stack([block[:, :2], np.ones(60)])
    order = [["a", "b"].index(name) for name in found.names[:-1]] + [2]
    expected = (x.T @ (block[:, 2:] * x))[np.ix_(order, order)] / 60
    np.testing.assert_allclose(found.hessian[0], expected, atol=1e-4)


def test_deaths_leave_the_dispersion_of_a_gamma_model_as_it_is(tmp_path):
    rng, names = np.random.default_rng(9), ["a", "b"]
    block, ids = rng.normal(size=(60, 2)), np.array([f"p{n}" for n in range(60)])
    labels = np.exp(0.3 * block[:, 0]) * rng.gamma(3.0, 1 / 3, 60)
    held = {
        name: [Tile.make(ids[rows], names, block[rows], labels[rows])]
        for name, rows in (("north", slice(0, 30)), ("south", slice(30, 60)))
    }
    asked = {"loss": "gamma", "class_weight": None, "folds": 0, "second_moments": ("hessian",)}
    settings = msgspec.structs.replace(SETTINGS, **asked)
    fates = dict.fromkeys(GAMMA, FATES[messages.CELLS.name])
    keys, memories = ephemeral_keys(tuple(held)), {}
    released, _, transport, crashes = run_with_faults(
        tmp_path, held, keys, memories, HOW, settings, fates
    )
    assert crashes == len(fates)
    assert all(transport.letters[phase] > 2 for phase in GAMMA)
    model, found = released.model, released.second_moments
    order = [names.index(name) for name in model.features]
    means = np.exp(block[:, order] @ model.coef[0] + model.intercept[0])
    assert found.pearson == pytest.approx(((labels / means - 1) ** 2).sum(), rel=1e-4)


def test_no_model_leaves_without_the_share_of_everyone(monkeypatch):
    """Shares of some parties add up to nothing: the run waits, and can be resumed."""
    seal = Party._seal

    def silent(self, message):
        if self.name == "lab":
            raise ConnectionError("is gone")
        return seal(self, message)

    monkeypatch.setattr(Party, "_seal", silent)
    impatient = msgspec.structs.replace(SETTINGS, patience=0.0)
    with pytest.raises(PartyAway, match=r"lab did not answer for its share .* resume") as told:
        Federation(tiles(), HOW).train(impatient)
    assert "\n" not in str(told.value)
