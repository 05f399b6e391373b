"""A submitter asks for runs that sites refuse, and reads sizes of groups from the refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from scene import table_of, tile_of

from weft.errors import ConfigError, DataError
from weft.federation.local_federation import Federation
from weft.guards.min_batch_across_runs import Change
from weft.guards.privacy_terms import OPEN, Terms
from weft.matching.build_holdings import LabelConflict
from weft.network.envelope_bytes import Hello, decode_reply, encode
from weft.network.site_answers_envelopes import Site
from weft.network.submitter_visible_figures import LINEAR
from weft.network.submitter_visible_figures import told_of as told_figures
from weft.privacy.agreement import Consent
from weft.protocol import pack
from weft.report.json_safe_and_rounded_values import rounded
from weft.solvers.run_settings import Settings

#: Terms under which each kind of seat is refused.
SEATS = {
    "small groups": {"min_batch": 50},
    "pairs": {"allow_pairs": False, "min_contributors": 3},
    "few holders": {"allow_pairs": False, "min_contributors": 5},
    "one column": {"allow_one_column": False},
    "crossed cells": {"allow_crossed_cells": False},
    "few labels": {"allow_pairs": False, "min_contributors": 5},
}


def seat(kind, size):
    """What a party would be told of its groups, of which one has this size."""
    holders = {"pairs": 2, "few holders": 3 + size % 2}.get(kind, 9)
    return SimpleNamespace(
        min_batch=1000,
        sizes=np.array([size]),
        exposed=np.array([kind == "small groups"]),
        sharers=np.array([holders]),
        column_sharers=np.array([holders]),
        column_cohort=np.zeros(size, int),
        fewest_foreign=np.array([1 if kind == "one column" else 9]),
        crossed=np.array([kind == "crossed cells"]),
        labelled=np.array([True]),
        n_parties=9,
        label_parties=3 + size % 2 if kind == "few labels" else 9,
    )


def told_of(kind, size):
    """What leaves a site that refuses such a seat, through its endpoint."""
    terms = msgspec.structs.replace(OPEN, **SEATS[kind])

    def open_party(request):
        Consent("south", roster=None, asked=terms).check_seat(seat(kind, size))

    return open_party


def answer(folder, open_party):
    """The sentence that the coordinator, and after it the submitter, gets."""
    site = Site(folder, open_party)
    return decode_reply(site.answer(encode(Hello.of("run-1", pack({"about": "a test"}))))).reason


@pytest.mark.parametrize("kind", SEATS)
def test_refusals_do_not_say_how_large_groups_are(kind, tmp_path, monkeypatch, caplog):
    said = [answer(tmp_path / str(size), told_of(kind, size)) for size in (37, 38)]
    assert said[0] == said[1]
    assert said[0].startswith("party south refuses ")
    # The owner of the site reads the figure in its own log.
    assert "37" in caplog.text or " 4 " in caplog.text
    # With the fix taken out, the sentence has the size.
    monkeypatch.setattr(ConfigError, "told", property(str, lambda *_: None), raising=False)
    open_said = [answer(tmp_path / f"open {size}", told_of(kind, size)) for size in (37, 38)]
    assert open_said[0] != open_said[1]


def steered(consent_for, changed):
    """How many samples changed since the last run, by asking for one run after the other."""

    def change_of(at_least):
        return Change(changed, 0, 0, "2026-01-01T10:00") if changed < at_least else None

    for asked in range(1, 200):
        try:
            consent_for(msgspec.structs.replace(OPEN, min_batch=asked)).check_change(change_of)
        except ConfigError as error:
            return asked, error.told
    return None


def test_a_submitter_cannot_find_by_asking_how_many_samples_changed(record):
    """The site's own min_batch decides; the submitter's adds nothing to it here."""
    changed = 31
    own = msgspec.structs.replace(Terms(), min_batch=10)
    before = steered(lambda asked: Consent("south", own.stricter(asked)), changed)
    assert before is not None
    assert before[0] - 1 == changed
    record("31", "unguarded", f"{before[0] - 1} of {changed} changed samples counted exactly")
    assert steered(lambda asked: Consent("south", own, asked=asked), changed) is None
    # What the site itself refuses is refused whatever is asked, in a sentence without a count.
    few = {steered(lambda asked: Consent("south", own, asked=asked), n) for n in (3, 9)}
    assert len(few) == 1
    (only,) = few
    assert only is not None
    assert only[0] == 1
    record("31", "guarded", "one sentence for all counts; the submitter's terms do not steer it")


#: Samples of all three parties, and of each alone.
COMMON, ALONE = 40, {"p1": 33, "p2": 57, "p3": 70}


@pytest.fixture(scope="module")
def tiles():
    table, first, held = table_of("breast_cancer", 200), COMMON, {}
    for party, count in ALONE.items():
        rows = np.r_[np.arange(COMMON), np.arange(first, first + count)]
        held[party] = (tile_of(table, rows),)
        first += count
    return held


def matched(tiles, min_batch):
    """The federation of a run under a submitter's min_batch, or the refusal."""
    terms = Terms(min_batch=min_batch, allow_exposure=True)
    try:
        return Federation(tiles, terms=terms).assemble(Settings(lam=0.1, loss="squared"))[1]
    except DataError as error:
        return error


def test_refused_matching_names_no_party_and_no_size(tiles):
    apart = {party: (tile_of(table_of("breast_cancer", 200), rows),) for party, rows in {
        "p1": slice(0, 33), "p2": slice(33, 90), "p3": slice(90, 200),
    }.items()}  # fmt: skip
    refused = [matched(apart, least) for least in (34, 58, 111)]
    # The coordinator's own log has it all, the submitter one sentence.
    assert [str(error)[:8] for error in refused] == ["party p1", "party p1", "all grou"]
    assert len({error.told for error in refused}) == 1
    assert not re.search(r"p\d|\d", refused[0].told)


def test_two_that_disagree_on_labels_are_not_named_nor_are_samples_counted(tiles):
    for count in (3, 4):
        (tile,) = tiles["p2"]
        labels = tile.labels.copy()
        labels[:count] = 1 - labels[:count]
        error = matched({**tiles, "p2": (replace(tile, labels=labels),)}, 1)
        assert str(error).startswith("p1 and p2 give different labels")
        assert f"to {count} common sample" in str(error)
        assert error.told == LabelConflict.TOLD
        assert not re.search(r"p\d|\d", error.told)


def test_totals_under_a_growing_min_batch_give_no_size_of_a_group_exactly(tiles, record):
    """Each step of the total is the size of a group."""

    def total(least):
        holdings = matched(tiles, least)
        counted = {"samples": holdings.n_samples, "left_out": holdings.rows.left_out}
        shown = told_figures({"federation": counted}, LINEAR)["federation"]
        return holdings.n_samples, shown

    found = [total(least) for least in (33, 34)]
    assert found[0][0] - found[1][0] == ALONE["p1"]
    record("31", "unguarded", f"{ALONE['p1']} samples of one party from two exact totals")
    assert [shown["samples"] for _, shown in found] == [200, 170]
    # Groups of other sizes give the same totals.
    (tile,) = tiles["p1"]
    fewer = {**tiles, "p1": (tile.rows(slice(0, COMMON + 31)),)}
    assert [rounded(matched(fewer, least).n_samples) for least in (31, 34)] == [200, 170]
    record("31", "guarded", "totals have two digits")
