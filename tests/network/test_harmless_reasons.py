"""Why a site refuses: what does no harm reaches the submitter, with the column; nothing else."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.federation.model import Model
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.network.envelope_bytes import Hello, decode_reply, encode
from weft.network.party_interface import OpenedParty
from weft.network.prediction_job import sign_prediction
from weft.network.site_answers_envelopes import Site
from weft.network.site_data_keys_and_consent import SiteMember
from weft.network.submitted_task import LinearTask, PredictTask
from weft.privacy.agreement import Limits, SitePolicy
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import pack
from weft.solvers.run_settings import Settings

IDS = ["n-4711", "n-4712", "n-4713"]
MODEL = Model(
    np.array(["age", "dose"], dtype=object), np.ones((1, 2)), np.zeros(1), None,
    (np.zeros(2), np.ones(2)), "squared", {}, 0.1, {}, missing="error",
)  # fmt: skip


def tile(cells=((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)), labels=(1.0, 2.0, 3.0)):
    return Tile.make(IDS, ["age", "dose"], np.array(cells), list(labels), source="patients.csv")


def refusal(tmp_path, task, held, new=None, *, tells=True):
    """What a site answers that is asked to take part in a run, and what its own log says."""
    keys = ephemeral_keys(("north",))
    if isinstance(task, PredictTask):
        task = sign_prediction(task, "r-1", keys["north"].identity)
    folder = tmp_path / "models"
    (folder / "run").mkdir(parents=True)
    MODEL.save(folder / "run" / "model.npz")
    if new is not None:
        pd.DataFrame({"id": IDS, **new}).to_csv(tmp_path / "new.csv", index=False)
    member = SiteMember(
        "north", (held,), keys["north"], {"north": keys["north"].identity.public},
        Ledger(tmp_path / "ledger"), policy=SitePolicy(OPEN, Limits(kinds=("linear", "predict"))),
        new=(tmp_path / "new.csv",), models=folder,
    )  # fmt: skip
    site = Site(
        tmp_path / "site",
        lambda request: OpenedParty(member.open_party(request.plan, request.memory, "r-1")),
        tells_columns=tells,
    )
    return decode_reply(site.answer(encode(Hello.of("r-1", pack(task.told()))))).reason


def training(loss="squared"):
    return LinearTask(
        name="t",
        parties=("north",),
        settings=Settings(lam=0.1, loss=loss),
        preprocessing=Preprocessing(),
    )


PREDICTING = PredictTask(
    name="p", parties=("north",), asker="north", model=MODEL.fingerprint.hex(), width=1,
    overlap="mean", signature="",
)  # fmt: skip
BLANK = tile(cells=((1.0, 2.0), (np.nan, 4.0), (5.0, 6.0)))
CASES = {
    "blank": (training(), BLANK, None, "has blank cells in column 'age', for which this run"),
    "labels": (
        training(),
        tile(labels=("ill", "well", "ill")),
        None,
        "its label column holds text, but this loss needs numbers",
    ),
    "new blank": (
        PREDICTING,
        tile(),
        {"age": [1, None, 3], "dose": [1, 2, 3]},
        "has blank cells in its column 'age', which the model was trained without",
    ),
    "new text": (
        PREDICTING,
        tile(),
        {"age": ["1", "tall", "3"], "dose": [1, 2, 3]},
        "its column 'age' is not numeric",
    ),
    "new spelling": (
        PREDICTING,
        tile(),
        {"Age": [1, 2, 3], "dose": [1, 2, 3]},
        "calls a column 'Age' that is 'age' in the model",
    ),
    "new others": (PREDICTING, tile(), {"shoe": [1, 2, 3]}, "no column is a feature of the model"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_harmless_reason_names_the_column_and_nothing_else(tmp_path, case, caplog):
    task, held, new, words = CASES[case]
    with caplog.at_level(logging.ERROR):
        said = refusal(tmp_path, task, held, new)
    assert words in said
    for secret in ("4711", "4712", "patients.csv", "new.csv", "tall", "ill"):
        assert secret not in said.replace("fill", "")
    # The owner reads the whole of it, in the site's log.
    assert "refused" in caplog.text
    assert said not in caplog.text


def test_a_site_may_keep_its_columns_to_itself(tmp_path):
    said = refusal(tmp_path, training(), BLANK, tells=False)
    assert said == "has data that do not fit this run; its own log says which"
