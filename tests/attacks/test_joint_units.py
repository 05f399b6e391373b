"""Another party's part of a score, from a joint prediction in which one party is told another unit.

Three parties by columns, breast cancer, careful terms. Scores are sums over the parties, so that
nobody's part shows alone. If p2 is told a unit that is far too large, its part comes to nothing,
and what p1 gets is p3's part beside its own.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from scene import by_columns, run, table_of
from without_rings import whatever_was_asked

from flat_messages import flat, typed
from weft.errors import ProtocolError
from weft.federation import local_joint_prediction
from weft.federation.local_joint_prediction import predict_scores
from weft.guards import Terms
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import LocalChannel
from weft.solvers.run_settings import Settings
from weft.sums.maxima_from_digit_sums import LargestParty

SETTINGS = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=1e-2, iterations=8)
FAR = 2.0**34


@pytest.fixture(scope="module")
def tiles():
    return by_columns(table_of("breast_cancer", 120), 3)


@pytest.fixture(scope="module")
def model(tiles):
    return run(tiles, SETTINGS, Terms()).trained.model


def predict(tiles, model, lie):
    """The parties after a prediction; ``lie`` changes messages, or puts some besides."""
    parties = {}

    class Lying(LocalChannel):
        def __init__(self, handlers, **options):
            parties.update({name: call.__self__ for name, call in handlers.items()})
            lying = {n: typed(asked(n, flat(call))) for n, call in handlers.items()}
            super().__init__(lying, **options)

    def asked(name, handler):
        return lambda phase, message: handler(phase, lie(name, phase, message, handler))

    consents = {name: Consent(name, Terms()) for name in tiles}
    with patch.object(local_joint_prediction, "LocalChannel", Lying):
        predict_scores(model, tiles, consents=consents)
    return parties


def far_unit(name, phase, message, handler):
    """p2 is told another unit than the others."""
    told = name == "p2" and phase == "joint.partial"
    return {**message, "unit": FAR} if told else message


def test_parts_of_others_show_if_one_is_told_another_unit(tiles, model, monkeypatch, record):
    monkeypatch.setattr(LargestParty, "insist_on_unit", lambda party, unit: None)
    whatever_was_asked(monkeypatch)
    parties = predict(tiles, model, far_unit)
    own = {name: party._partial_scores() for name, party in parties.items()}
    read = parties["p1"]._scores - model.centre_score - own["p1"]
    error = np.abs(read - own["p3"]).max() / np.abs(own["p3"]).max()
    assert np.abs(own["p2"]).max() > 0.1
    assert error < 1e-6
    record("40", "unguarded", f"p3's own part of {len(read)} scores, error {error:.0e}")


def test_a_unit_that_does_not_follow_from_the_digits_is_refused(tiles, model, record):
    with pytest.raises(ProtocolError, match="does not follow from what was found"):
        predict(tiles, model, far_unit)
    record("40", "guarded", "refused")


def test_parts_in_different_units_have_masks_that_do_not_cancel(tiles, model, monkeypatch):
    """Even if digits were made up to which the other unit fits."""
    monkeypatch.setattr(LargestParty, "insist_on_unit", lambda party, unit: None)
    with pytest.raises(ProtocolError, match="fails its check"):
        predict(tiles, model, far_unit)


@pytest.mark.parametrize("phase", ["joint.size", "joint.partial", "joint.scores", "match.view"])
def test_every_question_of_a_prediction_is_answered_once(tiles, model, phase):
    def twice(name, asked, message, handler):
        if name == "p2" and asked == phase:
            handler(asked, message)
            if "round" in message:
                return {**message, "round": message["round"] + 1}
        return message

    with pytest.raises(ProtocolError, match=r"again, or too early|already|does not wait for"):
        predict(tiles, model, twice)
