"""On shares, terms are insisted on where sums are opened, and nowhere else."""

from __future__ import annotations

from secrets import token_bytes

import msgspec
import numpy as np
import pytest
from sealed_runs import ALL, CUTS, cut, table

from weft.errors import WeftError
from weft.federation.coordinator import announce_for, match
from weft.federation.local_federation import Federation
from weft.federation.messages import START, StartRequest
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.matching.cohorts_exposed_to_non_holders import exposed_rows
from weft.matching.holding_map import HoldingMap
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import catalogue_entry, table_positions
from weft.sums.table_scaling_and_certificate_messages import EXTREMES, ExtremesRequest

SEALED = Settings(lam=1e-2, loss="logistic", solver="sealed")
ALLOWED = Terms(allow_pairs=True, allow_exposure=True)
#: Two parties, of which the second has six samples by itself.
FEW = {"a": [(slice(0, 84), ALL)], "b": [(slice(60, None), ALL)]}

NO_WEIGHTS = {"offset": 0.0, "weight": 1.0}


def federation(how, terms=None, record=False, classes=2, **preprocessing):
    block, labels = table(classes=classes)
    if classes == 3:
        labels[np.flatnonzero(labels == 0)[4:]] = 1
    tiles = cut(block, labels, how)
    terms = Terms() if terms is None else terms
    return Federation(tiles, Preprocessing(**preprocessing), terms=terms, record=record)


@pytest.mark.parametrize(("how", "scaling"), [("vertical", "standard"), ("horizontal", "none")])
def test_two_parties_train_on_the_strictest_terms(how, scaling):
    trained = federation(CUTS[how], scaling=scaling).train(SEALED)
    assert trained.result.certificate.gap <= 1e-3
    in_sums = federation(CUTS[how], scaling=scaling)
    with pytest.raises(WeftError, match="allow_"):
        in_sums.train(msgspec.structs.replace(SEALED, solver="lbfgs"))


def test_columns_that_two_parties_share_are_scaled_on_their_terms_only():
    with pytest.raises(WeftError, match=r"scaling = 'none'.*allow_pairs"):
        federation(CUTS["horizontal"], scaling="standard").train(SEALED)
    with pytest.raises(WeftError, match="allow_pairs"):
        federation(CUTS["vertical"], unit_rows=True).train(SEALED)
    allowed = federation(CUTS["horizontal"], ALLOWED, scaling="standard")
    assert allowed.train(SEALED).result.certificate.gap <= 1e-3


def test_small_groups_and_rare_classes_are_left_out_as_in_sums():
    sealed = federation(FEW, Terms(allow_exposure=True), classes=3).train(SEALED)
    in_sums = msgspec.structs.replace(SEALED, solver="lbfgs", gap=0.1)
    summed = federation(FEW, ALLOWED, classes=3).train(in_sums)
    assert sealed.holdings.small == summed.holdings.small == 6
    assert sealed.holdings.rare >= summed.holdings.rare > 0


def test_second_moments_of_columns_that_two_parties_share_take_their_terms():
    asked = msgspec.structs.replace(SEALED, second_moments=("gram",))
    with pytest.raises(WeftError, match=r"second moments of 7 features.*allow_pairs"):
        federation(CUTS["horizontal"], Terms(allow_second_moments=True)).train(asked)


def announced_falsely(how, asked, terms=None):
    """A coordinator that says "on shares", and means sums."""
    own = federation(how, terms)
    channel, run = own._open(asked), token_bytes(16)
    announced = announce_for(channel, own.preprocessing, asked, run, shares=True)
    match(channel, own.preprocessing, SEALED, announced, run, own._adder)
    return channel


def test_a_coordinator_that_announces_shares_and_means_sums_is_refused():
    asked = msgspec.structs.replace(SEALED, solver="lbfgs")
    channel = announced_falsely(CUTS["vertical"], asked)
    told = StartRequest(
        settings=asked.to_json(), unit=1.0, label=1.0, smallest_lam=1e-2, **NO_WEIGHTS
    )
    with pytest.raises(WeftError, match="allow_"):
        channel.ask(START, dict.fromkeys(channel.parties, told)).insist("starting")
    channel = announced_falsely(CUTS["horizontal"], asked)
    told = ExtremesRequest(round=1, digit=0, of="absolute")
    with pytest.raises(WeftError, match="allow_pairs"):
        channel.ask(EXTREMES, dict.fromkeys(channel.parties, told)).insist("scaling")


def test_what_is_rare_must_be_left_out_before_totals_of_columns_are_told():
    """Even where terms allow the totals, and before training."""
    how = {name: [(rows, ALL)] for name, rows in (("a", slice(0, 50)), ("b", slice(50, None)))}
    channel = announced_falsely(how, SEALED, ALLOWED)
    told = ExtremesRequest(round=1, digit=0, of="absolute")
    with pytest.raises(WeftError, match="too rare"):
        channel.ask(EXTREMES, dict.fromkeys(channel.parties, told)).insist("scaling")
    start = StartRequest(
        settings=SEALED.to_json(), unit=1.0, label=1.0, smallest_lam=1e-2, **NO_WEIGHTS
    )
    with pytest.raises(WeftError, match="too rare"):
        channel.ask(START, dict.fromkeys(channel.parties, start)).insist("starting")


def test_a_coordinator_that_hides_that_a_model_tells_of_all_groups_is_refused(monkeypatch):
    monkeypatch.setattr(HoldingMap, "exposed", property(exposed_rows))
    with pytest.raises(WeftError, match="a model tells of all of them"):
        federation(CUTS["vertical"]).train(SEALED)
    asked = federation(CUTS["vertical"], msgspec.structs.replace(OPEN, min_batch=10))
    channel, run = asked._open(SEALED), token_bytes(16)
    announced = announce_for(channel, asked.preprocessing, SEALED, run, shares=False)
    in_sums = msgspec.structs.replace(SEALED, solver="lbfgs")
    match(channel, asked.preprocessing, in_sums, announced, run, asked._adder)
    start = StartRequest(
        settings=SEALED.to_json(), unit=1.0, label=1.0, smallest_lam=1e-2, **NO_WEIGHTS
    )
    with pytest.raises(WeftError, match="was not announced"):
        channel.ask(START, dict.fromkeys(channel.parties, start)).insist("starting")


def test_parties_whose_words_nothing_hides_refuse_shares_whatever_cipher_they_are_told_of():
    own = federation(CUTS["vertical"], OPEN)
    channel, *_ = own.assemble(msgspec.structs.replace(SEALED, cipher="plain"))
    # Said of a run without keys for pads.
    assert SEALED.cipher == "pad"
    start = StartRequest(
        settings=SEALED.to_json(), unit=64.0, label=1.0, smallest_lam=1e-2, **NO_WEIGHTS
    )
    missing = channel.ask(START, dict.fromkeys(channel.parties, start)).missing
    assert set(missing) == {"a", "b"}
    assert all("needs a cipher that hides sums" in each.reason for each in missing.values())


def test_sums_instead_of_too_large_a_sealed_run_leave_out_what_they_must(monkeypatch):
    for module in (catalogue_entry, table_positions):
        monkeypatch.setattr(module, "MOST_CELLS", 100)
    asked = msgspec.structs.replace(SEALED, solver="auto", mode="auto")
    assert federation(FEW, ALLOWED).train(asked).holdings.small == 6
    # Parties insist on terms as ever.
    with pytest.raises(WeftError, match="allow_"):
        federation(CUTS["vertical"]).train(asked)
    trained = federation(CUTS["horizontal"], ALLOWED, classes=3).train(asked)
    assert trained.settings.solver == "lbfgs"
    assert trained.holdings.rare > 0
