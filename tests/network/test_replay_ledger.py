"""An interrupted party's ledger: as much as without the interruption, or more; never less."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from replayed import PREPARATION, Killed, Mortal, Troupe, pair, read, replay, settings_for

from covering import before_release
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.local_federation import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.ledger_file import Book
from weft.privacy.ledger.run_booking import Ledger


def counts(folder, party):
    """What a ledger holds of a party's samples, in whatever order."""
    pages = Book(folder, party).read()
    (run,) = pages.runs
    table = np.stack([pages.received, pages.shown, pages.foreign, pages.fewest])
    return table[:, np.lexsort(table)], run, pages.attended.places


def booked(
    folder,
    kill=lambda party, count: False,
    memories=None,
    solver="lbfgs",
    prepared=PREPARATION,
    **changes,
):
    """A run with a ledger; its troupe."""
    troupe = Troupe(kill, memories)
    troupe.train(pair(prepared, ledger=Ledger(folder)), settings_for(solver, **changes))
    return troupe


LEDGERED = {
    "cutting-planes": {"gap": 1e-3},
    "lbfgs": {"gap": 1e-6},
    "hyfdca": {"iterations": 12},
}
BOOKINGS = ("ledger booking 1", "ledger booking 3")


@pytest.mark.parametrize("solver", ["hyfdca", *before_release("cutting-planes", "lbfgs")])
def test_a_run_with_interruptions_has_the_same_counts_in_the_ledger(solver, tmp_path, monkeypatch):
    # Book often, so that there is much to book twice.
    monkeypatch.setattr("weft.privacy.ledger.sum_booking._AHEAD", 2)
    how = {"solver": solver, **LEDGERED[solver]}
    calm = booked(tmp_path / "calm", **how)
    killed = booked(tmp_path / "killed", lambda party, count: count % 19 == 5, **how)
    assert killed.deaths > len(killed.parties)
    written = 0
    for name in calm.parties:
        one, run, places = counts(tmp_path / "calm", name)
        other, again, there = counts(tmp_path / "killed", name)
        assert np.array_equal(one, other)
        assert run.cohorts == again.cohorts
        assert again.ended is not None
        assert run.exposed == again.exposed == 32
        assert not [key for key in killed.memories[name] if key.startswith("ledger attendance 2")]
        assert np.array_equal(np.sort(places), np.sort(there))
        assert one[0].max() == calm.parties[name].sum_counter.received.max() > 0
        written += sum("booking" in key for key in killed.memories[name])
    assert written > 3 * len(calm.parties)


@pytest.mark.parametrize(
    "kept", [False, pytest.param(True, marks=pytest.mark.release)], ids=["before", "after"]
)
def test_a_party_that_dies_while_it_books_counts_too_much_at_most(kept, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.privacy.ledger.sum_booking._AHEAD", 2)
    how = {"gap": 1e-2}
    calm = booked(tmp_path / "calm", **how)
    name = next(iter(calm.parties))
    true, _, _ = counts(tmp_path / "calm", name)
    # Names and numbers, without the hashes of what was heard.
    keys = [" ".join(key.split()[:3]) for key in calm.memories[name]]
    assert {key.split()[1] for key in keys if "ledger" in key} == {
        *("run", "objection", "attendance", "booking")
    }
    for key in (*("ledger objection 1", "ledger attendance 1"), *BOOKINGS, "end"):
        number = keys.index(key) + 1
        folder, closing = tmp_path / f"{number}", key == "end"
        memories = {name: Mortal(dies_at=number, kept=kept)}
        try:
            booked(folder, memories=memories, **how)
        except Killed:
            assert closing
        found, again, _ = counts(folder, name)
        assert (found >= true).all(), key
        # Who takes part is written as it is, however often; sums are added to what is there.
        exact = not closing and (kept or "booking" not in key)
        assert np.array_equal(found, true) == exact, key
        assert (again.ended is None) == closing


def test_who_closes_again_after_the_end_takes_nothing_back(tmp_path):
    calm = booked(tmp_path)
    for name in calm.parties:
        before = counts(tmp_path, name)[0]
        twin, _ = replay(calm, name, dict(calm.memories[name]))
        twin.close()
        assert np.array_equal(counts(tmp_path, name)[0], before)
        assert before[0].any()
        # What it had booked ahead is taken back: it must not show any more.
        with pytest.raises(ProtocolError, match="closed here"):
            twin.on(*calm.message(name, -1))


def test_without_the_closing_at_least_as_much_is_booked(tmp_path):
    calm = booked(tmp_path)
    name = next(iter(calm.parties))
    true = counts(tmp_path, name)[0]
    closing = list(calm.memories[name]).index("end") + 1
    folder = tmp_path / "open"
    again = Troupe(memories={name: Mortal(dies_at=closing, kept=False)})
    with pytest.raises(Killed):
        again.train(pair(ledger=Ledger(folder)), settings_for("lbfgs"))
    found, run, _ = counts(folder, name)
    assert run.ended is None
    assert (found[0] > true[0]).all()
    twin, _ = replay(again, name, dict(again.memories[name]))
    assert np.array_equal(counts(folder, name)[0], found)
    twin.close()
    assert np.array_equal(counts(folder, name)[0], true)


def test_what_was_booked_for_a_message_that_is_taken_back_serves_no_other(tmp_path, monkeypatch):
    """Else a coordinator could have sums booked in vain, and others that nobody books."""
    monkeypatch.setattr("weft.privacy.ledger.sum_booking._AHEAD", 0)
    # Norms of rows are shown before training begins.
    unit_rows = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
    calm, name = booked(tmp_path / "calm", prepared=unit_rows), "p1"
    kept = calm.memories[name].items()
    memory = {key: value for key, value in kept if "ledger" not in key and key != "end"}
    tiles, things = calm.made[name]
    calm.made[name] = tiles, {**things, "ledger": Ledger(tmp_path / "again")}
    messages = calm.messages[name]
    number = next(
        n for n, reply in enumerate(calm.replies[name]) if getattr(reply, "z", None) is not None
    )
    calm.messages[name] = messages[: number + 1]
    replay(calm, name, memory, strict=False)
    booked_once = [key for key in memory if "booking" in key]
    # The site takes the last message back, and another one comes in its place.
    calm.messages[name] = messages[:number]
    party, _ = replay(calm, name, memory, strict=False)
    phase, message = read(*messages[number])
    party.on(phase, replace(message, round=message.round + 1))
    booked_twice = [key for key in memory if "booking" in key]
    assert len(booked_twice) == len(booked_once) + 1
    pages = Book(tmp_path / "again", name).read()
    assert pages.shown.sum() > party.sum_counter.shown.sum() > 0


def refused(folder, **killing):
    """A run that a party stops, since it would show more than its policy allows."""
    careful = replace(OPEN, allow_exposure=False)
    consents = {name: Consent(name, careful) for name in ("p1", "p2")}
    troupe = Troupe(**killing)
    federation = pair(ledger=Ledger(folder), consents=consents)
    with pytest.raises(WeftError, match=r"party p. refuses to show more sums") as error:
        troupe.train(federation, settings_for("lbfgs", gap=1e-9))
    return troupe, str(error.value)


def show_before(folder, sums):
    """A ledger in which earlier runs have shown so many sums."""
    for name in booked(folder).parties:
        book = Book(folder, name)
        pages = book.read()
        pages.shown[:] = sums
        book.write(pages)


@pytest.mark.parametrize("before", [1, *before_release(0)])
def test_a_refusal_comes_again_whatever_the_ledger_holds_by_then(before, tmp_path):
    """Other runs may have taken something back since; the party's own past stays as it was."""
    show_before(tmp_path / "calm", before)
    show_before(tmp_path / "killed", before)
    calm, why = refused(tmp_path / "calm")
    killed, again = refused(tmp_path / "killed", kill=lambda party, count: count % 6 == 4)
    assert killed.deaths > 5
    assert why == again
    name = "p1" if "party p1" in why else "p2"
    assert list(map(len, calm.messages.values())) == list(map(len, killed.messages.values()))
    (tmp_path / "calm" / f"{name}.npz").unlink()
    with pytest.raises(ConfigError, match="refuses to show more sums"):
        replay(calm, name, dict(calm.memories[name]))
