"""A submitter asks for runs that sites refuse, and reads sizes of groups from the refusals."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from weft.errors import ConfigError
from weft.guards.min_batch_across_runs import Change
from weft.guards.terms import OPEN, Terms
from weft.network.envelope import Hello, decode_reply, encode
from weft.network.site_endpoint import Site
from weft.privacy.agreement import Consent
from weft.protocol import pack

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
    return decode_reply(site.answer(encode(Hello("run-1", pack({"about": "a test"}))))).reason


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
