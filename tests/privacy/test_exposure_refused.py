"""As many sums as others lack columns: refused unless agreed on, and told in one line if shown."""

from __future__ import annotations

import logging

import msgspec
import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data import SPLITS, load
from weft.errors import WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.network.envelope_bytes import End, Hello, decode_reply, encode
from weft.network.party_interface import OpenedParty
from weft.network.site_answers_envelopes import Site
from weft.network.site_data_keys_and_consent import SiteMember
from weft.network.submitted_task import LinearTask
from weft.privacy.agreement import Card, Consent, SitePolicy
from weft.privacy.agreement.cards_and_roster_drafts import draft_roster
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import pack
from weft.report.progress_and_ending_text import ending_text
from weft.report.summary import summarise
from weft.solvers.run_settings import Settings

#: Two parties with fifteen columns each: many sums, and a few.
MANY = Settings(lam=1e-2, gap=1e-3, solver="hyfdca", loss="hinge")
FEW = Settings(lam=1e-1, gap=0.3, solver="lbfgs", loss="logistic")
PREPARED = Preprocessing(scaling="standard", unit_rows=True)
CAREFUL = msgspec.structs.replace(OPEN, allow_exposure=False)


@pytest.fixture(scope="module")
def halves():
    table = load("breast_cancer").rows(np.arange(120))
    return SPLITS["columns"](table, 2).parties


def roster_of(terms):
    identity = Identity.new()
    card = Card.of_public("south", identity.public)
    return draft_roster("one", [card], terms).signed_by("south", identity)


@pytest.mark.parametrize(
    ("roster", "policy", "allowed"),
    [
        (None, None, False),
        (None, SitePolicy(Terms()), False),
        (None, SitePolicy(Terms(allow_exposure=True)), True),
        (roster_of(Terms()), None, False),
        (roster_of(Terms(allow_exposure=True)), None, True),
        (roster_of(Terms(allow_exposure=True)), SitePolicy(CAREFUL), False),
        (roster_of(Terms()), SitePolicy(OPEN), False),
    ],
)
def test_a_site_allows_exposure_only_by_its_policy_or_a_signed_roster(
    roster, policy, allowed, halves, tmp_path
):
    """Whatever the submitter says, whose terms may only be stricter."""
    if roster is not None:
        consent = Consent("south", OPEN, roster=roster, policy=policy, asked=OPEN)
        assert consent.terms.allow_exposure == allowed
        return
    keys = ephemeral_keys(("p1",))["p1"]
    members = {"p1": keys.identity.public}
    site = SiteMember("p1", tuple(halves["p1"]), keys, members, Ledger(tmp_path), policy=policy)
    task = LinearTask(name="t", parties=("p1",), settings=FEW, preprocessing=PREPARED, terms=OPEN)
    assert site.open_party(task.told(), {})._terms.allow_exposure == allowed


def test_a_run_that_is_likely_to_expose_columns_is_refused_before_its_first_sum(halves, tmp_path):
    consents = {name: Consent(name, CAREFUL) for name in halves}
    federation = Federation(
        halves, PREPARED, consents=consents, ledger=Ledger(tmp_path / "ledger"), record=True
    )
    with pytest.raises(WeftError, match=r"refuses to show more sums .*: LIKELY REACHED") as told:
        federation.train(MANY)
    assert "agree on allow_exposure = true" in str(told.value)
    shown = max(party.sum_counter.shown.max() for party in federation.parties.values())
    # Norms of rows for scaling are one sum; nothing of the solver was sent.
    assert shown <= 1
    # A way with few sums is not refused.
    Federation(halves, PREPARED, consents=consents, ledger=Ledger(tmp_path / "other")).train(FEW)


def test_every_run_says_in_one_line_what_it_has_exposed(halves, tmp_path):
    many = Federation(halves, PREPARED).train(MANY)
    few = Federation(halves, PREPARED).train(FEW)
    assert (many.exposed, few.exposed) == (("p1", "p2"), ())
    said = {}
    for trained, settings in ((many, MANY), (few, FEW)):
        summary = summarise(trained, settings, "two halves")
        lines = ending_text(tmp_path, summary, [], "Files")
        (said[settings.solver],) = [line for line in lines if line.startswith("Exposed: ")]
        # Neither sizes of groups nor of tables are in it.
        assert not any(digit.isdigit() for digit in said[settings.solver].replace("p1, p2", ""))
    assert said["hyfdca"].startswith("Exposed: p1, p2 showed another party as many sums about")
    assert said["lbfgs"].startswith("Exposed: no party showed another as many sums")


def test_a_sites_log_says_what_a_run_has_exposed(halves, tmp_path, caplog):
    federation = Federation(halves, PREPARED)
    federation.train(MANY)
    party = federation.parties["p1"]
    assert party.exposure.endswith("can work these columns out but for the mixing")
    assert "its 120 shared samples, of 120 as many as another" in party.exposure

    site = Site(tmp_path / "site", lambda request: OpenedParty(party))
    site.answer(encode(Hello.of("run-1", pack({"about": "a test"}))))
    with caplog.at_level(logging.INFO, logger="weft.site"):
        decode_reply(site.answer(encode(End("run-1", True, 0))))
    (line,) = [said for said in caplog.messages if "exposed" in said]
    assert line == f"run run-1: exposed: {party.exposure}"
