"""Many ids are matched in parts: the same result, no more ids than before, and how far it is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from matched_tiles import cut, filled, matched, only
from msgspec.structs import replace

from weft.data import Tile
from weft.errors import ProtocolError, WeftError
from weft.matching.oprf_party import Oblivious
from weft.matching.party import MatchingParty
from weft.network.submitter_visible_figures import LINEAR, told_of

SIZE = 25
#: So many letters each of them writes to each key holder.
PARTS = {"north": 3, "east": 3, "south": 3, "west": 2}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("weft.matching.oprf_announcement_and_limits.PART", SIZE)


def in_part(part, direction, phase, party, change):
    """Change the messages of one party in one phase about one part."""

    def changed(message):
        return change(message) if message["part"] == part else message

    return only(direction, phase, party, changed)


def test_parts_give_the_cohorts_and_slots_of_all_at_once(patchwork, monkeypatch):
    tiles = patchwork()
    _, channel, parties = matched(tiles)
    entries = channel.transcript
    asked = Counter(entry.party for entry in entries if entry.phase == "match.ask")
    assert asked == {party: 2 * parts for party, parts in PARTS.items()}
    answered = Counter(entry.party for entry in entries if entry.phase == "match.evaluate")
    assert answered == {"north": 3, "east": 3}
    # Hello, tokens, view and keys; and for every part two of each key holder.
    assert channel.meter.round_trips == 4 + 4 * max(PARTS.values())
    monkeypatch.undo()
    _, _, whole = matched(tiles)
    for name, party in parties.items():
        for rows, again in zip(party.view.tile_rows, whole[name].view.tile_rows, strict=True):
            assert rows.tolist() == again.tolist()
        assert party.view.cohort.tolist() == whole[name].view.cohort.tolist()


def test_it_tells_how_far_it_is_in_tens_only(patchwork):
    """Finer steps are of no use, and fill a log."""
    told = []
    matched(patchwork(), follow=told.append)
    assert told == ["30 % of the ids are matched", "60 % of the ids are matched", ""]


def test_a_submitter_can_count_parts_of_ids():
    """The largest table's: by round trips and calls, which are told as they are."""

    def told(rows):
        ids = [f"{'ab'[i % 2]}{i}" for i in range(rows)]
        tiles = {
            name: (Tile.make(ids[:count], [name], np.ones((count, 1)), np.arange(count) % 2),)
            for name, count in (("north", rows), ("east", 5))
        }
        meter = matched(tiles)[1].meter
        cost = {"cost": {"round_trips": meter.round_trips}, "phases": meter.to_dict()}
        seen = told_of(cost, LINEAR)
        calls = {phase: figures["calls"] for phase, figures in seen["phases"].items()}
        return seen["cost"]["round_trips"], calls["match.ask"], calls["match.evaluate"]

    assert told(SIZE + 1) == told(2 * SIZE - 1) == (12, 4, 4)
    assert told(2 * SIZE + 1) == (16, 6, 6)


def test_one_part_is_told_nobody(patchwork, monkeypatch):
    monkeypatch.undo()
    told = []
    matched(patchwork(), follow=told.append)
    assert told == [""]


# ── what is refused ───────────────────────────────────────────────────────────────────────────


def test_a_key_holder_answers_a_part_once_and_in_its_turn(patchwork):
    def again(message):
        cards, boxes = cut(message, "cards"), cut(message, "boxes")
        told = filled(message, "cards", [*cards, cards[0]])
        return filled(told, "boxes", [*boxes, boxes[0]])

    with pytest.raises(WeftError, match="party north refuses a second request of 'north'"):
        matched(patchwork(), change=in_part(1, "down", "match.evaluate", "north", again))

    def as_part(part):
        return lambda message: {**message, "part": part}

    with pytest.raises(WeftError, match="party east refuses a second request of 'north'"):
        matched(patchwork(), change=in_part(1, "down", "match.evaluate", "east", as_part(0)))
    with pytest.raises(WeftError, match="party east refuses a request of 'north' before those"):
        matched(patchwork(), change=in_part(1, "down", "match.evaluate", "east", as_part(2)))


def test_letters_fit_only_their_part(patchwork):
    kept = {}

    def older(message):
        if not message["part"]:
            kept["boxes"] = cut(message, "boxes")
            return message
        boxes = cut(message, "boxes")
        return filled(message, "boxes", [kept["boxes"][0], *boxes[1:]])

    with pytest.raises(WeftError, match="party north refuses the request of 'north'"):
        matched(patchwork(), change=only("down", "match.evaluate", "north", older))


def test_parts_together_are_no_more_ids_than_a_party_may_have(patchwork, monkeypatch):
    """West has 12 rows, and may ask for 24 forms here: the first 20 are none too many."""
    monkeypatch.setattr("weft.matching.oprf_party.most_ids", lambda rows: 2 * rows)
    monkeypatch.setattr("weft.matching.oprf_announcement_and_limits.PART", 20)
    with pytest.raises(WeftError, match="north refuses a request of 'west' for more ids than"):
        matched(patchwork())


@pytest.mark.parametrize("parts", [-5, 0, 3, 10**9])
def test_a_party_has_no_more_parts_than_its_rows_can_be(patchwork, parts):
    """West has 12 rows: 36 forms at most, in two parts. Else it could let all others wait."""

    def lie(message):
        return {**message, "parts": parts}

    with pytest.raises(WeftError, match=r"^party west has ids in more parts than its rows can be"):
        matched(patchwork(), change=only("up", "match.ask", "west", lie))


def test_announcements_that_nobody_can_read_stop_matching(patchwork):
    change = only("up", "match.hello", "west", lambda message: {**message, "card": b"\x93"})
    with pytest.raises(WeftError, match="refuses an announcement that it cannot read"):
        matched(patchwork(), holders=("west", "north"), change=change)
    with pytest.raises(WeftError, match="party west announced what cannot be read"):
        matched(patchwork(), change=change)


@pytest.mark.parametrize("points", [(10, None), (None, 0), (SIZE + 1, None)])
def test_a_key_holder_answers_full_parts_only_but_for_the_last(patchwork, monkeypatch, points):
    """Else a party with few rows could ask without end."""
    begun = Oblivious._begun_part

    def lie(asking, part):
        blinds, sent = begun(asking, part)
        if asking._keys.name != "south" or points[part] is None:
            return blinds, sent
        return blinds, (2 * sent)[: 32 * points[part]]

    monkeypatch.setattr(Oblivious, "_begun_part", lie)
    monkeypatch.setattr(Oblivious, "_finished_part", lambda asking, box: [])
    refused = "party north refuses a request of 'south' in parts that are not full or too long"
    with pytest.raises(WeftError, match=refused):
        matched(patchwork())


def test_a_refused_question_changes_nothing(patchwork, monkeypatch):
    tiles, ask = patchwork(), MatchingParty._ask
    refused = Counter()

    def flipped(content):
        return content[:-1] + bytes([content[-1] ^ 1])

    def first_spoilt(party, message):
        spoilt = [replace(message, holder=flipped(message.holder))]
        if message.box is not None:
            spoilt.append(replace(message, box=flipped(message.box)))
        for question in spoilt:
            with pytest.raises(ProtocolError, match=r" refuses the (public keys|answer) of "):
                ask(party, question)
            refused[message.part] += 1
        return ask(party, message)

    _, _, calm = matched(tiles)
    monkeypatch.setattr(MatchingParty, "_ask", first_spoilt)
    _, _, parties = matched(tiles)
    # Only the first question of all brings no answer.
    assert refused == {0: 12, 1: 16, 2: 12}
    for name, party in parties.items():
        assert party.view.cohort.tolist() == calm[name].view.cohort.tolist()


def test_a_party_asks_the_same_holders_about_every_part(patchwork):
    cards = {}

    def other(message):
        cards.setdefault(message["hop"], message["holder"])
        return {**message, "holder": cards[0]} if message["part"] and message["hop"] else message

    with pytest.raises(WeftError, match="south refuses 'north' as a key holder that was not one"):
        matched(patchwork(), change=only("down", "match.ask", "south", other))


@pytest.mark.parametrize(
    ("part", "hop", "instead"), [(0, 1, (1, 0)), (1, 0, (2, 0)), (1, 1, (1, 0)), (2, 0, (3, 0))]
)
def test_a_party_is_asked_in_turn(patchwork, part, hop, instead):
    def moved(message):
        if (message["part"], message["hop"]) != (part, hop):
            return message
        return {**message, "part": instead[0], "hop": instead[1]}

    refused = "party south refuses (to be asked .* out of turn|'east' as a key holder that was not)"
    with pytest.raises(WeftError, match=refused):
        matched(patchwork(), change=only("down", "match.ask", "south", moved))


def test_tokens_wait_for_the_last_part(patchwork):
    """Else a coordinator could have some of a party's ids left out."""

    def fewer(message):
        return {**message, "parts": 2}

    with pytest.raises(WeftError, match="party south refuses to match before it has asked about"):
        matched(patchwork(), change=only("up", "match.ask", "south", fewer))
