"""What parties refuse, one thing after the other, and what lets them take part."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from guarded import checkerboard, roster_of, table_of, tile_of, train
from hypothesis import given
from hypothesis import strategies as st

from masked_parties import masks_of
from weft.crypto.keys import ephemeral_keys
from weft.crypto.scalar_mask_neighbours import attendance
from weft.data import SPLITS
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.party import Party
from weft.guards import OPEN, Terms
from weft.guards.privacy_terms import MODES
from weft.matching.guard_facts_from_confirmed_lists import facts_of
from weft.matching.party_view import PartyView
from weft.privacy.agreement.check_runs_against_terms import check_seat, check_settings
from weft.privacy.agreement.signed_roster import terms_words
from weft.protocol.message_bytes import Question
from weft.report.page.privacy import TERMS_IN_WORDS
from weft.solvers.run_settings import Settings

BREAST = table_of("breast_cancer", 180)


def grid(k, q):
    return SPLITS["grid"](BREAST, k=k, q=q).parties


def all_but_one():
    """Four parties with all samples; the last one lacks a column."""
    ends = (30, 30, 30, 29)
    return {f"p{k + 1}": (tile_of(BREAST, columns=slice(end)),) for k, end in enumerate(ends)}


def seat_of(tiles, party=0, terms=None, **options) -> PartyView:
    return known(roster_of(tiles, terms or Terms(), **options).view(party))


def known(told) -> PartyView:
    """A view with what the party works out from it."""
    return PartyView.of(told, tile_rows=(), tile_columns=(), **vars(facts_of(told)))


#: What the first party refuses, in which words, and the terms that would allow it.
SEATS = {
    "pairs of samples": (
        lambda: grid(3, 2),
        "r1c1 refuses sums over 60 samples that it shares with one other party, because each "
        "could compute the other's part; agree on allow_pairs = true if that is meant",
        {"allow_pairs": True},
    ),
    "pairs of features": (
        lambda: grid(2, 3),
        "r1c1 refuses sums over 10 features that it shares with one other party",
        {"allow_pairs": True},
    ),
    "one column": (
        all_but_one,
        "p1 refuses sums over 180 samples of which another holder lacks a single column, whose "
        "values it could compute at once; bring more columns, or agree on allow_one_column = true",
        {"allow_one_column": True},
    ),
    "crossed cells": (
        lambda: checkerboard(BREAST).parties,
        "p1 refuses sums over 180 samples of which some party has a feature for other samples "
        "only, so that it could compute the cells it lacks; give it these cells, or agree on "
        "allow_crossed_cells = true",
        {"allow_crossed_cells": True},
    ),
}


@pytest.mark.parametrize("what", SEATS)
def test_a_seat_is_refused_for_one_reason_and_taken_if_that_is_allowed(what):
    make, words, allowed = SEATS[what]
    tiles = make()
    view, party = seat_of(tiles), next(iter(tiles))
    with pytest.raises(ConfigError) as refusal:
        check_seat(Terms(), view, party)
    assert str(refusal.value).startswith(f"party {words}")
    check_seat(Terms(**allowed), view, party)
    # Whatever else is allowed does not help.
    others = {
        name: True
        for name in Terms.__struct_fields__
        if name.startswith("allow_") and name not in allowed
    }
    with pytest.raises(ConfigError):
        check_seat(Terms(**others), view, party)


def test_sums_of_three_are_refused_where_four_are_asked_for():
    view = seat_of(grid(3, 3))
    check_seat(Terms(), view, "r1c1")
    with pytest.raises(ConfigError, match="that only 3 parties share; lower min_contributors = 4"):
        check_seat(Terms(min_contributors=4), view, "r1c1")


def test_a_run_with_a_lower_min_batch_than_its_own_is_refused():
    view = seat_of(grid(3, 3), terms=Terms(min_batch=5))
    check_seat(Terms(min_batch=5), view, "r1c1")
    with pytest.raises(
        ConfigError,
        match="r1c1 refuses a run with min_batch = 5, because its own terms say 10; raise that",
    ):
        check_seat(Terms(), view, "r1c1")


def test_small_groups_that_the_coordinator_did_not_leave_out_are_refused():
    """It says that it guards, but seats samples that a guard would never let change."""
    tiles = {**grid(3, 3), "extra": (tile_of(BREAST, slice(0, 4), slice(0, 10)),)}
    honest = roster_of(tiles, OPEN)
    lying = replace(honest, terms=Terms())
    with pytest.raises(
        ConfigError,
        match="r1c1 refuses to train on 4 samples in groups of fewer than min_batch = 10; leave",
    ):
        check_seat(Terms(), known(lying.view(0)), "r1c1")


#: Settings that are refused, the words, and the terms that would allow them.
SETTINGS = {
    "papers": (
        {"coordinator_sees": "papers"},
        "coordinator_sees = 'papers', which shows the coordinator each party's feature sums; use "
        "'nothing'",
        {"coordinator_sees": "papers"},
    ),
    "weights": (
        {"coordinator_sees": "weights"},
        "coordinator_sees = 'weights', which shows the coordinator the model's weights; use "
        "'nothing'",
        {"coordinator_sees": "weights"},
    ),
    "plain cipher": (
        {"cipher": "plain"},
        "cipher = 'plain'; choose one of pad, bfv, paillier",
        {"ciphers": ("plain",)},
    ),
    "sample norms": (
        {"norms": "sample"},
        "to share the norms of single samples; set norms = 'cohort', or agree on "
        "allow_sample_norms = true",
        {"allow_sample_norms": True},
    ),
    "theory": (
        {"local": "theory", "norms": "cohort"},
        "to share the norms of single samples; use local = 'safe', or agree on "
        "allow_sample_norms = true",
        {"allow_sample_norms": True},
    ),
    "norms of a stand-in": (
        {"solver": "cutting-planes", "norms": "sample", "when_missing": "hyfdca"},
        "to share the norms of single samples; set norms = 'cohort', or agree on "
        "allow_sample_norms = true",
        {"allow_sample_norms": True},
    ),
    "groups": (
        {"solver": "cutting-planes", "groups": 7},
        "groups = 7, which cuts some of its samples into parts of fewer than min_batch = 10; use "
        "fewer groups",
        {"min_batch": 8},
    ),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_are_refused_for_one_reason_and_taken_if_that_is_allowed(what):
    changes, words, allowed = SETTINGS[what]
    settings = Settings(lam=1e-2, **{"norms": "cohort", **changes})
    view = seat_of(grid(3, 3))
    with pytest.raises(ConfigError) as refusal:
        check_settings(Terms(), settings, view, "r1c1")
    assert str(refusal.value) == f"party r1c1 refuses {words}"
    check_settings(Terms(**allowed), settings, view, "r1c1")


def test_a_party_refuses_what_the_solver_itself_cannot_run_with():
    """A coordinator that skips the solver's own check does not get around it."""
    settings = Settings(lam=1e-2, norms="cohort", iic=2.0)
    with pytest.raises(ConfigError, match="iic is 2; give a positive share"):
        check_settings(Terms(), settings, seat_of(grid(3, 3)), "r1c1")


def test_careful_settings_are_taken():
    view = seat_of(grid(3, 3))
    for changes in (
        {"norms": "cohort"},
        {"local": "practical", "norms": "sample"},
        {"solver": "lbfgs", "loss": "logistic"},
        {"solver": "cutting-planes", "groups": 6},
        {"solver": "cutting-planes", "norms": "cohort", "when_missing": "hyfdca"},
    ):
        check_settings(Terms(), Settings(lam=1e-2, **changes), view, "r1c1")


@pytest.mark.parametrize("bias", [False, True])
def test_weights_of_features_with_fewer_than_three_holders_are_not_shown(bias):
    """Where the coordinator may see weights at all; the constant's is nobody's secret."""
    terms = Terms(coordinator_sees="weights", allow_pairs=True)
    settings = Settings(lam=1e-2, norms="cohort", coordinator_sees="weights")
    with pytest.raises(
        ConfigError, match="because 10 of its features have fewer than three holders"
    ):
        check_settings(terms, settings, seat_of(grid(2, 3), bias=bias), "r1c1")
    check_settings(terms, settings, seat_of(grid(3, 3), bias=bias), "r1c1")


def test_the_constant_is_none_of_the_features_with_too_few_holders():
    """Not where it is a party's first column either: it is all that these two share."""
    apart = {
        "a": (tile_of(BREAST, slice(90), slice(15)),),
        "b": (tile_of(BREAST, slice(90, None), slice(15, None)),),
    }
    view = seat_of(apart, bias=True)
    assert view.bias_slot == 0
    terms = Terms(coordinator_sees="weights", allow_pairs=True)
    settings = Settings(lam=1e-2, norms="cohort", coordinator_sees="weights")
    with pytest.raises(ConfigError, match="because 15 of its features have fewer"):
        check_settings(terms, settings, view, "a")


@pytest.mark.parametrize("solver", ["hyfdca", "cutting-planes"])
def test_a_refusal_ends_the_run_before_any_sum(solver):
    settings = Settings(lam=1e-2, solver=solver, norms="cohort")
    with pytest.raises(ProtocolError, match=r"^party r1c1 refuses sums over 10 features"):
        train(grid(2, 3), settings, Terms())
    with pytest.raises(ProtocolError, match=r"^party r1c1 refuses cipher = 'plain'"):
        train(grid(3, 3), msgspec.structs.replace(settings, cipher="plain"), Terms())


def test_a_party_is_careful_unless_it_is_told_otherwise():
    tiles = grid(3, 2)
    keys = ephemeral_keys(tuple(tiles))
    party = Party("r1c1", tiles["r1c1"], keys=keys["r1c1"])
    assert party._terms == Terms()
    with pytest.raises(ConfigError, match="allow_pairs"):
        party._consent.check_seat(seat_of(tiles))
    with pytest.raises(ConfigError, match="plain"):
        party._consent.check(Settings(lam=1e-2, cipher="plain"), seat_of(tiles))
    # Data in one hand is nobody's secret.
    _, roster, *_ = Federation(tiles).assemble(Settings(lam=1e-2))
    assert roster.terms == OPEN


# ── terms ─────────────────────────────────────────────────────────────────────────────────────

CIPHERS = ("plain", "pad", "bfv", "paillier")


@st.composite
def all_terms(draw):
    pairs = draw(st.booleans())
    flags = [f for f in Terms.__struct_fields__ if f.startswith("allow_") and f != "allow_pairs"]
    return Terms(
        min_batch=draw(st.integers(1, 40)),
        min_contributors=draw(st.integers(1 if pairs else 3, 5)),
        allow_pairs=pairs,
        most_explained=draw(st.floats(0.01, 1.0)),
        coordinator_sees=draw(st.sampled_from(MODES)),
        # One in common: without it nothing would be left to agree on.
        ciphers=("pad", *draw(st.lists(st.sampled_from(CIPHERS[2:]), unique=True))),
        matching=draw(st.sampled_from(["hmac", "oprf"])),
        **{flag: draw(st.booleans()) for flag in flags},
    )


@given(all_terms(), all_terms(), all_terms())
def test_the_terms_that_keep_to_both_are_the_strictest_in_every_field(a, b, c):
    both = a.stricter(b)
    for field in Terms.__struct_fields__:
        one, other, found = (getattr(terms, field) for terms in (a, b, both))
        if field.startswith("allow_"):
            assert found == (one and other)
        elif field.startswith("min_"):
            assert found == max(one, other)
        elif field == "coordinator_sees":
            assert MODES.index(found) == min(MODES.index(one), MODES.index(other))
        elif field.startswith("most_"):
            assert found == min(one, other)
        elif field == "ciphers":
            assert set(found) == set(one) & set(other)
        else:
            assert field == "matching", "a field that this test does not know"
            assert (found == "oprf") == ("oprf" in (one, other))
    assert a.stricter(a) == a
    assert a.stricter(b).stricter(c) == a.stricter(b.stricter(c))
    for parties in range(1, 8):
        # No sum is opened that either of them forbids.
        assert both.allows(parties) <= (a.allows(parties) and b.allows(parties))
        assert both.allows_scalars(parties) <= (
            a.allows_scalars(parties) and b.allows_scalars(parties)
        )


def test_open_terms_are_the_widest_and_defaults_the_most_careful():
    assert OPEN.stricter(OPEN) == OPEN
    careful = Terms().stricter(OPEN)
    assert careful == OPEN.stricter(Terms()) == Terms()
    assert not any(getattr(Terms(), f) for f in Terms.__struct_fields__ if f.startswith("allow_"))


def test_terms_without_a_common_cipher_do_not_go_together():
    with pytest.raises(ConfigError, match="ciphers"):
        Terms(ciphers=("pad",)).stricter(Terms(ciphers=("bfv",)))


@pytest.mark.parametrize(
    "wrong",
    [{"min_batch": 0}, {"min_contributors": 0}, {"min_contributors": 6}, {"min_contributors": 2}],
)
def test_terms_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Terms(**wrong)


# ── masks ─────────────────────────────────────────────────────────────────────────────────────


class MaskingParties:
    """Parties of which only the masks matter."""

    def __init__(self, count, **terms):
        self.count, self.terms = count, Terms(**terms)

    def ask(self, party, labelled):
        """What a party adds in a sum over those with labels."""
        masks = masks_of(self.count, self.terms, labelled)[party]
        question = Question("a phase", "losses", 0, 1, False, b"")
        return masks.sum(question, masks.labelled(), 2)


def test_masks_of_three_cancel():
    question = Question("a phase", "losses", 0, 1, False, b"")
    parts = [masks.sum(question, masks.everyone(), 2) for masks in masks_of(3, Terms())]
    assert all(all(part) for part in parts)
    assert [sum(column) for column in zip(*parts, strict=True)] == [0, 0]


def test_masks_under_one_question_are_others_for_another_set_of_parties():
    """Else two totals of one question, over other parties each, would differ in what one told."""
    question = Question("a phase", "losses", 0, 1, False, b"")
    everybody = attendance(4, [0, 1, 2, 3])
    for masks in masks_of(4, Terms()):
        sets = masks.everyone(), masks.labelled(), masks.attending(everybody, harmless=True)
        found = [tuple(masks.sum(question, over, 2)) for over in sets]
        assert len(set(found)) == 3


@pytest.mark.parametrize(
    ("labelled", "flag", "words"),
    [
        ((0,), "allow_lone_labels", "would read its own; agree on allow_lone_labels"),
        ((0, 1), "allow_pairs", "would read a sum of two; agree on allow_pairs"),
    ],
)
def test_scalars_of_so_few_that_one_could_read_them_are_refused(labelled, flag, words):
    with pytest.raises(ConfigError, match=f"refuses to tell 'losses' .* {words} = true"):
        MaskingParties(3).ask(0, labelled)
    assert len(MaskingParties(3, **{flag: True}).ask(0, labelled)) == 2
    other = {"allow_lone_labels": "allow_pairs", "allow_pairs": "allow_lone_labels"}[flag]
    with pytest.raises(ConfigError):
        MaskingParties(3, **{other: True}).ask(0, labelled)


def test_a_sum_over_some_parties_is_refused_where_several_must_contribute():
    """Two sums over other sets differ by what a single party told."""
    some = attendance(5, [0, 1, 2, 3])
    assert masks_of(5)[0].attending(some).numbers.tolist() == [0, 1, 2, 3]
    careful = masks_of(5, Terms())[0]
    assert len(careful.attending(None).numbers) == 5
    with pytest.raises(ProtocolError, match="a sum that not all take part in"):
        careful.attending(some)


@pytest.mark.parametrize("labels", ["all", "first"])
def test_a_run_tells_no_scalars_of_two_parties(labels):
    """Two of three vertical parties have labels, or one: losses are sums over these."""
    split = SPLITS["columns"](BREAST, parties=3, labels=labels).parties
    if labels == "all":
        split["p3"] = (replace(split["p3"][0], labels=None),)
    settings = Settings(lam=1e-2, solver="cutting-planes", gap=1e-2)
    flag = {"all": "allow_pairs", "first": "allow_lone_labels"}[labels]
    with pytest.raises(ProtocolError, match=f"agree on {flag} = true, or let more bring labels"):
        train(split, settings, Terms())
    _, trained = train(split, settings, Terms(**{flag: True}))
    assert trained.result.certificate.gap <= 1e-2


def test_every_term_is_said_in_words_to_those_who_sign_it_and_in_the_report():
    names = [field.name for field in msgspec.structs.fields(Terms)]
    assert list(TERMS_IN_WORDS) == names
    for terms in (Terms(), OPEN):
        told = list(terms_words(terms))
        assert len(told) == len(names)
        # What has no words of its own would be shown as it is called.
        assert not [line for line in told if line.startswith(tuple(f"{name} = " for name in names))]
