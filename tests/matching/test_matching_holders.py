"""Matching through key holders: who can ask, what is refused, and what nobody can compute."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from matched_tiles import cut, filled, matched, only

from weft.crypto.authenticated_party_letters import LetterError, read_letter, write_letter
from weft.crypto.keys import PartyKeys, ephemeral_keys
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.primitives.oprf import OprfKey, blind, matching_key
from weft.crypto.secret_bytes import Secret
from weft.data import Tile
from weft.errors import ConfigError, DataError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.matching.messages import CONFLICT, HELLO, ConflictRequest, HelloRequest
from weft.matching.oprf_announcement_and_limits import Announcement
from weft.matching.party import MatchingParty
from weft.matching.tokens import tokens_of
from weft.solvers.run_settings import Settings

SETTINGS = Settings(lam=1.0)
OPRF = Preprocessing(matching="oprf")


# ── it matches ────────────────────────────────────────────────────────────────────────────────


def test_both_ways_give_the_same_cohorts_slots_and_model(patchwork, quick):
    tiles = patchwork(unlabelled=("east",))
    settings = quick(iterations=6)
    seats, models = [], []
    for matching in ("hmac", "oprf"):
        federation = Federation(tiles, Preprocessing(matching=matching, intercept=True))
        models.append(federation.train(settings).model)
        seats.append([party.view for party in federation.parties.values()])
    for one, other in zip(*seats, strict=True):
        for rows, again in zip(one.tile_rows, other.tile_rows, strict=True):
            assert rows.tolist() == again.tolist()
        for columns, again in zip(one.tile_columns, other.tile_columns, strict=True):
            assert columns.tolist() == again.tolist()
        assert one.cohort.tolist() == other.cohort.tolist()
    assert np.array_equal(models[0].coef, models[1].coef)


def test_round_trips_of_both_ways(patchwork):
    trips = {}
    for matching in ("hmac", "oprf"):
        _, channel, _ = matched(patchwork(), matching=matching)
        trips[matching] = channel.meter.round_trips
    assert trips == {"hmac": 3, "oprf": 8}


def test_a_party_alone_is_its_own_key_holder(patchwork):
    alone = {"north": patchwork()["north"]}
    roster, channel, _ = matched(alone)
    assert roster.n_samples == 20
    assert channel.meter.round_trips == 6


def test_key_holders_can_be_named(patchwork):
    tiles = patchwork()
    _, channel, _ = matched(tiles, holders=("west", "north"))
    asked = [entry.party for entry in channel.transcript if entry.phase == "match.evaluate"]
    assert asked == ["west", "north"]
    for holders, what in (
        (("west", "west"), "only once"),
        (("nobody",), "'nobody' is no party"),
        ((), "at least one"),
    ):
        with pytest.raises(ConfigError, match=what):
            matched(tiles, holders=holders)


def test_several_tiles_of_a_party_share_ids():
    one = Tile.make(["a", "b"], ["x"], np.ones((2, 1)), [0.0, 1.0])
    two = Tile.make(["b", "c"], ["y"], np.ones((2, 1)), [1.0, 2.0])
    roster, _, parties = matched({"north": (one, two), "south": (one,)})
    assert roster.n_samples == 3
    rows = parties["north"].view.tile_rows
    assert rows[0][1] == rows[1][0]


def test_labels_at_odds_are_found_and_rows_named_by_their_owners():
    one = Tile.make(["a", "b", "c"], ["x"], np.ones((3, 1)), [0.0, 1.0, 2.0], "north.csv")
    two = Tile.make(["c", "b"], ["y"], np.ones((2, 1)), [9.0, 8.0], "south.csv")
    for matching in ("hmac", "oprf"):
        with pytest.raises(
            DataError,
            match=r"2 common .*north: rows 2, 3 of north\.csv; south: rows 1, 2 of south\.csv; cor",
        ):
            matched({"north": (one,), "south": (two,)}, matching=matching)


# ── who may ask ───────────────────────────────────────────────────────────────────────────────


def test_the_coordinator_cannot_ask_in_the_name_of_a_party(patchwork):
    """It knows every public key and the place of every letter, but no identity."""
    tiles = patchwork()
    own, runs = Identity.new(), []

    def forge(direction, phase, party, message):
        if (direction, phase) == ("down", "match.hello"):
            runs.append(message["run"])
        if (direction, phase, party) != ("down", "match.evaluate", "north"):
            return message
        cards = [msgspec.msgpack.decode(c, type=Announcement) for c in cut(message, "cards")]
        boxes = cut(message, "boxes")
        _, elements = blind([b"patient-001"])
        place = msgspec.msgpack.encode(["weft matching 2", runs[0], "ask", 0, 0, "west", "north"])
        boxes[3] = write_letter(own, cards[0].identity, place, elements)
        return filled(message, "boxes", boxes)

    with pytest.raises(WeftError, match=r"north refuses the request of 'west' .*not written"):
        matched(tiles, change=forge)


def test_the_coordinator_cannot_put_itself_in_the_place_of_a_party(patchwork):
    tiles = patchwork()
    own, key = Identity.new(), matching_key(Identity.new())

    def replaced(card):
        found = msgspec.msgpack.decode(card, type=Announcement)
        changed = msgspec.structs.replace(found, public=own.public.to_bytes(), key=key.public)
        return msgspec.msgpack.encode(changed)

    change = only("down", "match.ask", "west", lambda m: {**m, "holder": replaced(m["holder"])})
    with pytest.raises(WeftError, match="party west refuses the public keys of 'north': nobody"):
        matched(tiles, change=change)

    def replace_cards(message):
        cards = cut(message, "cards")
        return filled(message, "cards", [*cards[:-1], replaced(cards[-1])])

    with pytest.raises(WeftError, match="party north refuses the public keys of 'west': nobody"):
        matched(tiles, change=only("down", "match.evaluate", "north", replace_cards))


def test_letters_fit_only_where_they_belong(patchwork):
    tiles = patchwork()

    def swap(message):
        first, second, *rest = cut(message, "boxes")
        return filled(message, "boxes", [second, first, *rest])

    with pytest.raises(WeftError, match="party east refuses the request of 'north'"):
        matched(tiles, change=only("down", "match.evaluate", "east", swap))
    with pytest.raises(WeftError, match="refuses the answer of key holder 'east'"):
        matched(tiles, change=only("up", "match.evaluate", "east", swap))

    def shortened(message):
        return filled(message, "boxes", [box[:-1] for box in cut(message, "boxes")])

    with pytest.raises(WeftError, match="refuses the request"):
        matched(tiles, change=only("down", "match.evaluate", "east", shortened))


@pytest.mark.parametrize("length", [0, 10, 24, 39])
def test_short_letters_are_no_letters(length):
    one, other = Identity.new(), Identity.new()
    with pytest.raises(LetterError, match="not written by"):
        read_letter(one, other.public, b"", bytes(length))
    letter = write_letter(other, one.public, b"here", b"content")
    assert read_letter(one, other.public, b"here", letter) == Secret(b"content")
    with pytest.raises(LetterError, match="not written by"):
        read_letter(one, other.public, b"there", letter)
    with pytest.raises(LetterError, match="not written by"):
        read_letter(other, one.public, b"here", letter)


def test_a_key_holder_answers_a_party_once(patchwork):
    def again(message):
        cards, boxes = cut(message, "cards"), cut(message, "boxes")
        told = filled(message, "cards", [*cards, cards[2]])
        return filled(told, "boxes", [*boxes, boxes[2]])

    with pytest.raises(WeftError, match="party north refuses a second request of 'south'"):
        matched(patchwork(), change=only("down", "match.evaluate", "north", again))


def test_a_key_holder_cannot_be_made_to_forget_whom_it_has_answered(patchwork):
    _, channel, _ = matched(patchwork())
    again = channel.ask(HELLO, {"north": HelloRequest(run=bytes(16))})
    assert "has begun to match already" in again.missing["north"].reason


def test_a_party_asks_for_no_more_ids_than_it_announced(patchwork, monkeypatch):
    """Each id, its loose form and its bare form: 12 rows may ask for 36."""
    tiles = patchwork()
    forms = MatchingParty._forms

    def greedy(self):
        found = forms(self)
        if self._name == "west":
            more = [f"guess {i}" for i in range(37 - len(found))]
            found = np.concatenate([found, np.array(more, dtype=object)])
        return found

    monkeypatch.setattr(MatchingParty, "_forms", greedy)
    with pytest.raises(
        WeftError, match="north refuses a request of 'west' for more ids than it may have"
    ):
        matched(tiles)


# ── keys and proofs ───────────────────────────────────────────────────────────────────────────


@dataclass
class Listed:
    """A member of a signed roster."""

    identity: PublicIdentity
    matching_key: bytes | None = None
    row_limit: int = 1_000_000


def listed(keys, holders=("north", "east")):
    return {
        name: Listed(
            own.identity.public, matching_key(own.identity).public if name in holders else None
        )
        for name, own in keys.items()
    }


def test_a_roster_says_whose_keys_count(patchwork):
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles))
    known = listed(keys)
    assert matched(tiles, keys=keys, known=known)[0].n_samples == 44
    with pytest.raises(WeftError, match="refuses the matching key of 'west', which is not"):
        matched(tiles, keys=keys, known=known, holders=("north", "west"))
    with pytest.raises(WeftError, match=r"refuses to match with 1 key holder\(s\)"):
        matched(tiles, keys=keys, known=known, holders=("north",))
    other = matching_key(Identity.new()).public
    wrong = {**known, "east": Listed(keys["east"].identity.public, other)}
    with pytest.raises(WeftError, match="party north refuses the matching key of 'east'"):
        matched(tiles, keys=keys, known=wrong)
    wrong = {**known, "west": Listed(Identity.new().public)}
    with pytest.raises(WeftError, match="refuses the public keys of 'west', which the roster"):
        matched(tiles, keys=keys, known=wrong)
    with pytest.raises(WeftError, match="refuses the public keys of 'west', which the roster"):
        matched(tiles, keys=keys, known={n: m for n, m in known.items() if n != "west"})
    known["south"].row_limit = 5
    with pytest.raises(WeftError, match="refuses a request of 'south' for more ids than"):
        matched(tiles, keys=keys, known=known)


@pytest.mark.parametrize("holder", ["north", "east"])
def test_a_key_holder_that_uses_two_keys_is_caught(patchwork, monkeypatch, holder):
    """It could mark one party's ids, to see later which they are."""
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles))
    mine = matching_key(keys[holder].identity).public
    other = OprfKey.derive(Secret(bytes(32)), b"")
    evaluate = OprfKey.evaluate

    def cheat(self, blinded):
        if self.public != mine:
            return evaluate(self, blinded)
        return evaluate(self, blinded[:-32]) + evaluate(other, blinded[-32:])

    monkeypatch.setattr(OprfKey, "evaluate", cheat)
    # The first party that has to check is not the one that cheats.
    with pytest.raises(WeftError, match=f"refuses the answer of key holder '{holder}' .*proof"):
        matched(tiles, keys=keys)


def test_the_same_holder_twice_or_steps_out_of_order_are_refused(patchwork):
    tiles = patchwork()
    cards = {}

    def twice(direction, phase, party, message):
        if (direction, phase, party) == ("down", "match.ask", "south"):
            cards.setdefault("first", message["holder"])
            return {**message, "holder": cards["first"]}
        return message

    with pytest.raises(WeftError, match="party south refuses 'north' as key holder twice"):
        matched(tiles, change=twice)
    with pytest.raises(WeftError, match="party south refuses to be asked for step 3"):
        matched(tiles, change=only("down", "match.ask", "south", lambda m: {**m, "hop": 3}))


def test_parties_with_other_run_secrets_do_not_meet(patchwork):
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles))
    keys["west"] = PartyKeys("west", keys["west"].identity, Secret.random())
    with pytest.raises(WeftError, match="north and west hold different run secrets"):
        matched(tiles, keys=keys)


# ── terms ─────────────────────────────────────────────────────────────────────────────────────


def test_a_party_whose_terms_want_key_holders_refuses_the_run_secret_alone(patchwork):
    terms = msgspec.structs.replace(OPEN, matching="oprf")
    assert isinstance(terms, Terms)
    with pytest.raises(WeftError, match="party north refuses matching = 'hmac'"):
        matched(patchwork(), terms=terms, matching="hmac")
    assert matched(patchwork(), terms=terms)[0].n_samples == 44
    with pytest.raises(WeftError, match="north refuses matching = 'hmac'"):
        Federation(patchwork(), terms=terms).assemble(SETTINGS)
    Federation(patchwork(), OPRF, terms=terms).assemble(SETTINGS)


# ── what nobody can compute ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("matching", ["hmac", "oprf"])
def test_the_run_secret_tries_out_ids_unless_there_are_key_holders(patchwork, matching):
    """The attack of a coordinator that a party has told the run secret."""
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles))
    _, channel, parties = matched(tiles, keys=keys, matching=matching)
    entries = channel.transcript
    # All that the key depends on besides the run secret went through the coordinator's hands.
    secret = parties["north"]._keyring.bound_secret("weft tokens")
    guesses = [f"patient-{i:03}" for i in range(44)]
    guessed = set(tokens_of([g.encode() for g in guesses], secret, "rows").tolist())
    for label in (0.0, 1.0):
        pairs = [g.encode() + b"\x00%r" % label for g in guesses]
        guessed |= set(tokens_of(pairs, secret, "labels").tolist())
    seen = set()
    for entry in entries:
        if entry.phase == "match.tokens":
            for field in ("rows", "labels", "loose"):
                seen |= set(entry.reply[field].tolist())
    found = len(guessed & seen)
    assert found == (0 if matching == "oprf" else 88)


def test_tokens_are_others_in_every_run_and_letters_hold_no_name(patchwork):
    tiles = patchwork()
    keys = ephemeral_keys(tuple(tiles))
    seen = []
    for _ in range(2):
        _, channel, _ = matched(tiles, keys=keys)
        replies = [e.reply for e in channel.transcript if e.phase == "match.tokens"]
        seen.append({t for reply in replies for t in reply["rows"].tolist()})
        for entry in channel.transcript:
            for value in (*entry.message.values(), *entry.reply.values()):
                raw = value.tobytes() if isinstance(value, np.ndarray) else value
                assert not isinstance(raw, bytes) or b"patient" not in raw
    assert not seen[0] & seen[1]
    assert len(seen[0]) == 44


def test_the_order_of_the_file_does_not_show(patchwork):
    """The coordinator sees sorted tokens, and where labels go with them."""
    tiles = patchwork(unlabelled=("east",))
    for matching in ("hmac", "oprf"):
        _, channel, _ = matched(tiles, matching=matching)
        for entry in channel.transcript:
            if entry.phase == "match.tokens":
                assert (np.diff(entry.reply["rows"].astype(object)) > 0).all()
                assert (np.diff(entry.reply["columns"].astype(object)) > 0).all()


def test_slots_follow_from_ids_and_not_from_tokens_or_the_order_of_rows(patchwork):
    tiles = patchwork()
    shuffled = {
        name: (t.rows(np.random.default_rng(3).permutation(t.n)),) for name, (t,) in tiles.items()
    }
    found = []
    for given in (tiles, tiles, shuffled):
        _, _, parties = matched(given, matching="hmac")
        slots = {}
        for name, party in parties.items():
            ids, rows = party.ids[0], party.view.tile_rows[0]
            slots[name] = dict(zip(ids.tolist(), rows.tolist(), strict=True))
        found.append(slots)
    assert found[0] == found[1] == found[2]


PLACES = np.array([[0, i] for i in range(12)])


def test_a_party_names_a_few_rows_once(patchwork, monkeypatch):
    """Else a coordinator could ask for the row of every token."""
    sit, said = MatchingParty.sit, []

    def asked_before(party, message):
        for _ in range(2):
            with pytest.raises(WeftError) as refused:
                party.answers()[CONFLICT.name].handle(ConflictRequest(places=PLACES))
            said.append(str(refused.value))
        return sit(party, message)

    monkeypatch.setattr(MatchingParty, "sit", asked_before)
    matched({"west": patchwork()["west"]}, matching="hmac")
    first, again = said
    assert first == "rows 1, 2, 3, 4, 5 and 7 more of its tile"
    assert "once" in again


@pytest.mark.parametrize("places", [[[9, 0]], [[-1, 0]], [[0, 999]], [[0, -1]], [[0, 1, 2]], [0]])
def test_rows_that_there_are_not_are_not_named(patchwork, monkeypatch, places):
    asked = []

    def ask_before(party, message):
        asked.append(ConflictRequest(places=np.array(places)))
        with pytest.raises(WeftError, match="places"):
            party.answers()[CONFLICT.name].handle(asked[-1])
        return sit(party, message)

    sit = MatchingParty.sit
    monkeypatch.setattr(MatchingParty, "sit", ask_before)
    matched({"west": patchwork()["west"]}, matching="hmac")
    assert asked


def test_with_its_view_a_party_forgets_which_row_has_which_token(patchwork):
    _, channel, parties = matched(patchwork(), matching="hmac")
    late = channel.ask(CONFLICT, {"west": ConflictRequest(places=PLACES)})
    assert "before its view" in late.missing["west"].reason
    assert parties["west"]._sent is None


def test_a_seat_of_other_cohorts_than_the_tokens_is_refused(patchwork):
    def moved(message):
        cohorts = message["view.tile_row_cohorts.places"].copy()
        cohorts[0] = (cohorts[0] + 1) % len(message["view.cohort"])
        return {**message, "view.tile_row_cohorts.places": cohorts}

    def fewer(message):
        places = message["view.tile_row_cohorts.places"][1:]
        lengths = np.array([len(places)])
        tiles = {"places": places, "lengths": lengths}
        return {**message, **{f"view.tile_row_cohorts.{k}": v for k, v in tiles.items()}}

    def uneven(message):
        places = message["view.tile_row_cohorts.places"][1:]
        return {**message, "view.tile_row_cohorts.places": places}

    with pytest.raises(WeftError, match="party east: the view's cohorts have other sizes"):
        matched(patchwork(), matching="hmac", change=only("down", "match.view", "east", moved))
    with pytest.raises(WeftError, match="party east: the view is for other tiles"):
        matched(patchwork(), matching="hmac", change=only("down", "match.view", "east", fewer))
    with pytest.raises(WeftError, match="'lengths' are not those of the tiles"):
        matched(patchwork(), matching="hmac", change=only("down", "match.view", "east", uneven))


@pytest.mark.parametrize(
    ("phase", "lacks", "what"),
    [
        ("match.view", "seeds.", "was not told which seeds it makes"),
        ("match.view", "view.min_batch", "'view.min_batch' is missing"),
        ("match.keys", "seeds.", "was sent no seeds"),
        ("match.keys", "tags", "what not all their holders confirm"),
        ("match.tokens", "box", "without the answer of a key holder"),
        # What is declared as needed is refused where it is read: ``test_declarations.py``.
        *(
            pytest.param(*case, marks=pytest.mark.release)
            for case in [
                ("match.view", "seeds.participants.labelled", "participants.labelled' is missing"),
                ("match.view", "seeds.participants.keys", "'seeds.participants.keys' is missing"),
                ("match.view", "view.exposed", "'view.exposed' is missing"),
                ("match.tokens", "matching", "'matching' is missing"),
                ("match.tokens", "run", "'run' is missing"),
            ]
        ),
    ],
)
def test_what_is_left_out_switches_nothing_off(patchwork, phase, lacks, what):
    def without(message):
        kept = {name: value for name, value in message.items() if not name.startswith(lacks)}
        assert len(kept) < len(message)
        return kept

    # Where tokens come from makes no difference to all that comes after them.
    matching = "oprf" if phase == "match.tokens" else "hmac"
    change = only("down", phase, "east", without)
    with pytest.raises(WeftError, match=f"party east.*{what}"):
        matched(patchwork(), matching=matching, change=change)


def test_ways_of_matching_that_do_not_exist_are_refused(patchwork):
    """Any other word was once taken for the run secret alone."""
    change = only("down", "match.tokens", "east", lambda m: {**m, "matching": "oprf "})
    with pytest.raises(WeftError, match="names no way of matching: 'oprf '"):
        matched(patchwork(), change=change)


def test_a_run_is_one_run(patchwork):
    change = only("down", "match.tokens", "east", lambda m: {**m, "run": bytes(16)})
    with pytest.raises(WeftError, match="party east was told of two runs"):
        matched(patchwork(), change=change)
