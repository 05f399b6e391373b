"""Whoever dies, in whatever phase of whatever method or kind of run: the same bits, or a sentence.

A method that goes on without those who are away is held against one process in which the same
parties miss the same exchanges; a sealed run against one process with what its parties drew. How a
cell ended, and after how many seconds, is in the file of ``--junit-xml``.
"""

from __future__ import annotations

import json
from functools import cache

import msgspec
import numpy as np
import pandas as pd
import pytest
from rehearsed_deaths import (
    BACK,
    GONE,
    PARTIES,
    PATIENCE,
    SETUP,
    WORK,
    Rehearsal,
    Study,
    by_columns,
    cells_of,
    new_credentials,
    playing,
    training,
)

from covering import cover
from weft.crypto.keys import ephemeral_keys
from weft.data.tile import Tile
from weft.errors import WeftError
from weft.federation.descriptive_statistics_coordinator import described_as
from weft.federation.local_federation import Federation
from weft.federation.model import Model
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.network.prediction_job import read_scores, sign_prediction
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.network.run_results import PRESENCE
from weft.network.submitted_task import CheckTask, DescribeTask, PredictTask
from weft.privacy.agreement import Consent, Limits
from weft.solvers.run_settings import Settings
from weft_examples.replay_deployed_run_in_process import Drawn, repeat_run

KEYS = ephemeral_keys(PARTIES)
#: Whose model is compared, and who asks for predictions.
READER = "north"
SET_UP = ("announcing", "matching", "scaling")
TRAINED = (*SET_UP, "solver", "release", "closing")


def three_classes(cells):
    return np.digitize(cells[:, 0] + cells[:, 3], [-0.5, 0.5])


def by_rows():
    """Each party has samples of its own, with labels, and all columns."""
    rng = np.random.default_rng(6)
    cells, ids = rng.normal(size=(60, 3)), [f"n{row:02}" for row in range(60)]
    # No columns separate them: a fit without a penalty has an end.
    labels = (cells.sum(axis=1) + 2.0 * rng.normal(size=60) > 0).astype(int)
    return {
        name: (Tile.make(ids[rows], ["a", "b", "c"], cells[rows], labels[rows]),)
        for name, rows in zip(PARTIES, (slice(0, 30), slice(30, 60)), strict=True)
    }


#: Methods that need everyone, or go on without some; on tables that they can have.
METHODS = {
    "hyfdca": (by_columns, {"loss": "hinge", "iterations": 6, "gap": None, "certify_every": 3}),
    "cutting-planes": (by_columns, {"loss": "hinge", "gap": 2e-1}),
    "newton-cg": (by_columns, {"loss": "logistic", "gap": 1e-1}),
    "hyfem": (by_columns, {"loss": "logistic", "iterations": 4, "gap": None, "certify_every": 2}),
    "fedavg": (by_rows, {"loss": "logistic", "iterations": 4, "gap": None, "certify_every": 2}),
    "cocoa": (by_rows, {"loss": "hinge", "iterations": 4, "gap": None, "certify_every": 2}),
    "fedhybrid": (by_rows, {"loss": "logistic", "iterations": 4, "gap": None, "certify_every": 2}),
    "admm": (by_columns, {"loss": "logistic", "iterations": 6, "gap": None, "certify_every": 3}),
}
_ROUNDS = {"loss": "logistic", "iterations": 4, "gap": None, "certify_every": 2}
#: All other methods, on release days; SDCA is for one party alone.
FURTHER = {
    "span-newton": (by_columns, {"loss": "logistic", "gap": 1e-2}),
    "fedprox": (by_rows, _ROUNDS),
    "fedsgd": (by_columns, _ROUNDS),
    "fedbcd": (by_columns, _ROUNDS),
    "disco": (by_rows, _ROUNDS),
    "cocoa+": (by_rows, {**_ROUNDS, "loss": "hinge"}),
    "d3ca": (by_columns, _ROUNDS),
    "feddcd": (by_rows, _ROUNDS),
}


#: Further runs that train, by what is special about them.
SEALED = {"solver": "sealed", "loss": "logistic", "lam": 1.0, "gap": 1e-1}
SOFTMAX = {"solver": "lbfgs", "loss": "softmax", "gap": 1e-1}
INFERENCE = {
    "solver": "newton-cg", "loss": "logistic", "inference": "model",
    "lam": 0.0, "iterations": 3, "gap": None, "penalize_intercept": False,
}  # fmt: skip
EVALUATION = {"solver": "lbfgs", "loss": "logistic", "folds": 2, "gap": 2e-1}
MOMENTS = msgspec.structs.replace(OPEN, allow_second_moments=True)
#: Of these, those that tell something beside the model.
BESIDE = ("inference", "evaluation")
#: Runs that train nothing, with their phases.
LOOKING = ("announcing", "matching", "looking", "closing")
OTHERS = {
    "description": LOOKING,
    "check": LOOKING,
    "prediction": ("announcing", "matching", "predicting", "closing"),
}


@cache
def study(name, folder):
    """What a run is about; files of new samples are written to the folder."""
    if name in METHODS | FURTHER:
        held, settings = (METHODS | FURTHER)[name]
        return Study(training({"solver": name, **settings}), held())
    if name in OTHERS:
        return {"description": _description, "check": _check}.get(
            name, lambda: _prediction(folder)
        )()
    return {
        "neural": _networks,
        "sealed": lambda: Study(
            training(SEALED, preprocessing=Preprocessing(scaling="none")), by_rows()
        ),
        "softmax": lambda: Study(training(SOFTMAX), by_columns(three_classes)),
        "inference": lambda: Study(
            training(
                INFERENCE,
                terms=MOMENTS,
                preprocessing=Preprocessing(scaling="standard", intercept=True),
            ),
            by_rows(),
            MOMENTS,
        ),
        "evaluation": lambda: Study(training(EVALUATION), by_rows()),
    }[name]()


def _networks():
    from neural_deaths import neural_study

    return neural_study(by_rows())


def _before(kind, preprocessing):
    settings = Settings(lam=0.1, loss="logistic", patience=PATIENCE)
    return kind(
        name="a study", parties=PARTIES, settings=settings, preprocessing=preprocessing,
        setup=SETUP, timeout=WORK,
    )  # fmt: skip


def _description():
    told = _before(DescribeTask, described_as(Preprocessing(scaling="standard")))
    terms = msgspec.structs.replace(OPEN, min_batch=10)
    return Study(told, by_rows(), terms, Limits(kinds=("describe",)))


def _check():
    return Study(_before(CheckTask, Preprocessing(scaling="standard")), by_rows())


@cache
def model():
    rng = np.random.default_rng(0)
    names = np.array(list("abcde"), dtype=object)
    return Model(
        names, rng.normal(size=(1, 5)), rng.normal(size=1), np.array(["x", "y"]),
        (rng.normal(size=5), np.ones(5)), "hinge", {}, 0.1, {},
    )  # fmt: skip


def _prediction(folder):
    held = by_columns()
    got = folder / "got" / "trained"
    got.mkdir(parents=True)
    model().save(got / "model.npz")
    new = {}
    for name, (tile,) in held.items():
        frame = pd.DataFrame(tile.block, columns=list(tile.features))
        frame.insert(0, "id", tile.ids)
        new[name] = (folder / f"{name}.csv",)
        frame.to_csv(*new[name], index=False)
    told = PredictTask(
        name="p", parties=PARTIES, model=model().fingerprint.hex(), width=1, matching="hmac",
        asker=READER, overlap=model().overlap, signature="", setup=SETUP, timeout=WORK,
    )  # fmt: skip
    signed = sign_prediction(told, "p-1", KEYS[READER].identity)
    limits = Limits(kinds=("predict",), askers=(READER,))
    models = dict.fromkeys(PARTIES, folder / "got")
    return Study(signed, {}, OPEN, limits, new=new, models=models)


# ── what a run gives, and what it must give ────────────────────────────────────────────────────


def found(rehearsal, name, reader=READER):
    """What came of a run, without what depends on how long it took."""
    if name == "prediction":
        scores = read_scores(rehearsal.results, KEYS[READER].identity, model())
        return [scores.ids.tolist(), scores.scores.tobytes()]
    if name in OTHERS:
        return [json.loads((rehearsal.results / f"{name}.json").read_text())]
    if name == "neural":
        from neural_deaths import networks_of

        return networks_of(rehearsal, reader)
    fit = rehearsal.model(reader)
    parts = [fit.coef.tobytes(), fit.intercept.tobytes()]
    if name == "evaluation":
        parts.append(rehearsal.summary()["evaluation"])
    if name == "inference":
        parts.append((rehearsal.folder / "saved" / reader / "coefficients.csv").read_text())
    return parts


def said_by(rehearsal, caplog):
    """What a run that ended tells of those who were missing, to submitters or in its log."""
    path = rehearsal.results / "summary.json"
    # Networks have notes only.
    told = {"notes": [], "gone": [], **(json.loads(path.read_text()) if path.exists() else {})}
    logged = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    return " ".join([*told["notes"], *told["gone"], *logged])


def in_one_process(rehearsal, name):
    """The model of one process: with the same parties away, or what they drew."""
    about = rehearsal.study
    told = about.task.preprocessing, about.task.settings
    if name == "sealed":
        drawn = Drawn((rehearsal.folder / "coordinator" / "run").read_bytes(), rehearsal.drawn)
        consents = {party: Consent(party, OPEN) for party in PARTIES}
        return repeat_run(about.held, *told, drawn, keys=KEYS, consents=consents)[0].model
    presence = Presence.load(rehearsal.results / PRESENCE)
    federation = Federation(about.held, told[0], terms=about.terms)
    return federation.train(told[1], through=lambda inner: ReplayedPresence(inner, presence)).model


def expected(rehearsal, name, undisturbed, reader):
    """What the run must give."""
    if name in OTHERS:
        return undisturbed(name)
    if name == "neural":
        from neural_deaths import networks_in_one_process

        return networks_in_one_process(rehearsal, reader, KEYS)
    fit = in_one_process(rehearsal, name)
    beside = undisturbed(name)[2:] if name in BESIDE else []
    return [fit.coef.tobytes(), fit.intercept.tobytes(), *beside]


@pytest.fixture(scope="module")
def credentials():
    return new_credentials()


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return tmp_path_factory.mktemp("new samples")


@pytest.fixture
def rehearse(tmp_path, monkeypatch, credentials, tables):
    """Makes a federation for a kind of run."""
    with playing(monkeypatch) as clock:
        made = []

        def make(name):
            made.append(
                Rehearsal(tmp_path / str(len(made)), clock, credentials, KEYS, study(name, tables))
            )
            return made[-1]

        yield make
        for rehearsal in made:
            rehearsal.close()


_UNDISTURBED = {}


@pytest.fixture
def undisturbed(rehearse):
    """What a run without deaths gives; of each kind it is made once."""

    def give(name):
        if name not in _UNDISTURBED:
            rehearsal = rehearse(name)
            rehearsal.run()
            _UNDISTURBED[name] = found(rehearsal, name)
        return _UNDISTURBED[name]

    return give


#: Phases of each kind of run.
KINDS = {
    **dict.fromkeys((*METHODS, "softmax", "inference", "evaluation"), TRAINED),
    "sealed": ("announcing", "matching", "setting up", "solver", "release", "closing"),
    **OTHERS,
}
MORE_KINDS = {
    **dict.fromkeys(FURTHER, TRAINED),
    "neural": ("announcing", "planning", "scaling", "setting up", "solver", "release", "closing"),
}


def cells_in(kinds):
    return [(name, *cell) for name, phases in kinds.items() for cell in cells_of(phases)]


@cover(("name", "role", "phase", "how"), cells_in(KINDS), others=cells_in(MORE_KINDS))
def test_every_death_in_every_method_ends_in_the_same_bits_or_one_sentence(
    rehearse, undisturbed, record_property, caplog, name, role, phase, how
):
    rehearsal = rehearse(name)
    rehearsal.strike(role, phase, how)
    began = rehearsal.clock.now()
    error = None
    try:
        rehearsal.run()
    except WeftError as found_out:
        error = str(found_out)
    seconds = rehearsal.clock.now() - began
    record_property("seconds", seconds)
    if error is not None:
        assert how == "gone"
        assert role in error
        assert "\n" not in error
        record_property("outcome", "a sentence")
    elif (how, phase) == ("gone", "release"):
        # The model lacks what the party would have sealed, which the run says.
        assert role in said_by(rehearsal, caplog)
        record_property("outcome", "a note")
    else:
        # All parties read the model; one that is gone has none.
        reader = "south" if (role, how) == ("north", "gone") else READER
        assert found(rehearsal, name, reader) == expected(rehearsal, name, undisturbed, reader)
        if how == "gone":
            assert role in said_by(rehearsal, caplog)
        record_property("outcome", "same absences" if how == "gone" else "the same bits")
    assert seconds < (GONE if how == "gone" else BACK)
    assert rehearsal.struck
