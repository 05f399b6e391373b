"""Whoever dies is back from its newest snapshot, to the bit, and hides nothing else under a pad."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from member_sites import MemberSites
from replayed import cut_for, settings_for
from saved_runs import (
    Faults,
    Hidden,
    answer_until_done,
    calm_run,
    makers,
    often,
    resume,
    run_over,
)
from toys import MemoryTransport

from covering import examples, some_of
from weft.crypto.keys import ephemeral_keys
from weft.crypto.secret_bytes import Secret
from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.model import load_model
from weft.federation.party import Party
from weft.federation.party_snapshots import PartySnapshots
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards.sum_noise_size import SumNoise
from weft.network.coordinator_snapshots import CoordinatorSnapshots
from weft.network.envelope_bytes import Failed, Work, Worked, decode_envelope, decode_reply
from weft.network.journal_of_random_draws import RandomnessStore
from weft.network.record_and_replay_absences import ReplayedPresence
from weft.network.site_snapshots import SNAPSHOT
from weft.network.submitted_task import LinearTask
from weft.privacy.ledger.ledger_file import Book
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.run_settings import Settings
from weft.storage.atomic_files import StorageError
from weft.storage.journal import Journal
from weft.storage.object_graph import Graph, Opaque, attributes_of
from weft.storage.object_state import ObjectState

HOW = Preprocessing(intercept=True, confirmed=ONE_TABLE)
RUN = Settings(solver="hyfdca", loss="logistic", lam=0.1, gap=None, iterations=12, certify_every=4)
JOURNAL, RANDOMNESS = "runs/run-1/journal.weft", "runs/run-1/randomness.weft"


def held():
    """One party has the labels and one column, the other two columns of the same samples."""
    rng = np.random.default_rng(6)
    cells, ids = rng.normal(size=(12, 3)), [f"n{row:02}" for row in range(12)]
    labels = (cells.sum(axis=1) > 0).astype(int)
    return {
        "north": (Tile.make(ids, ["a"], cells[:, :1], labels),),
        "south": (Tile.make(ids, ["b", "c"], cells[:, 1:]),),
    }


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    with often(10**9):
        return calm_run(tmp_path_factory.mktemp("calm"), held(), HOW, RUN)


@pytest.fixture
def site(known, tmp_path):
    """The site of a party that has come to the middle of its training, with several snapshots."""
    with often(3):
        place = resume(known, tmp_path / "north")
        for envelope, _ in middle(known):
            assert isinstance(decode_reply(place.site.answer(envelope)), Worked)
        place.site.close()
        yield place


def middle(known):
    return known.letters[: len(known.letters) // 2]


def same_words(one, other):
    """Whether two answers say the same, in the same bytes."""
    assert isinstance(one, Worked), one
    return one.replies == other.replies


# ── whatever happens ──────────────────────────────────────────────────────────────────────────

#: Letters that a site gets while it dies: several snapshots, and as many new files.
FEW = 15
FATES = st.dictionaries(
    st.integers(0, 75), st.sampled_from(["before", "after", "torn", "full"]), max_size=5
)


def answered_in_spite_of(faults, known, place, letters):
    """Send letters while faults are at work, and compare what comes back."""
    hidden = Hidden()
    with hidden.watching(), faults.at_work():
        for envelope, answer in letters:
            assert same_words(answer_until_done(place, envelope), decode_reply(answer))
    return hidden


@examples(
    100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(fates=FATES, envelopes=st.integers(1, 4))
def test_whenever_a_site_dies_it_says_the_same_and_uses_no_pad_twice(
    known, tmp_path_factory, fates, envelopes
):
    with often(envelopes):
        place = resume(known, tmp_path_factory.mktemp("site") / "north")
        hidden = answered_in_spite_of(Faults(fates), known, place, known.letters[:FEW])
        # And once more from the disk alone.
        place.kill()
        with hidden.watching():
            again = decode_reply(place.site.answer(known.letters[FEW - 1][0]))
        place.site.close()
    assert same_words(again, decode_reply(known.letters[FEW - 1][1]))
    assert hidden.twice == []
    assert len(hidden.seen) > FEW // 2


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A calm run whose parties draw noise for every gradient."""
    rng = np.random.default_rng(6)
    cells, ids = rng.normal(size=(24, 3)), [f"n{row:02}" for row in range(24)]
    labels = (cells.sum(axis=1) + rng.normal(size=24) > 0).astype(int)
    tiles = {
        name: (Tile.make(ids[rows], ["a", "b", "c"], cells[rows], labels[rows]),)
        for name, rows in (("north", slice(0, 12)), ("south", slice(12, 24)))
    }
    settings = Settings(
        solver="lbfgs", loss="logistic", lam=0.1, gap=None, iterations=8,
        sum_noise=SumNoise(multiplier=1.0),
    )  # fmt: skip
    with often(10**9):
        return calm_run(tmp_path_factory.mktemp("noisy"), tiles, HOW, settings)


def drawn_at(place):
    """Names of what a site's party has drawn and still keeps."""
    memory = RandomnessStore(place.folder / RANDOMNESS)
    found = list(memory)
    memory.close()
    return found


@examples(
    100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(fates=FATES, envelopes=st.integers(1, 3))
def test_a_memory_without_what_nobody_hears_again_draws_nothing_anew(
    noisy, tmp_path_factory, fates, envelopes
):
    with often(envelopes):
        place = resume(noisy, tmp_path_factory.mktemp("site") / "north")
        hidden = Hidden()
        # Its noise is its own; but what it said once, it says again.
        with hidden.watching(), Faults(fates).at_work():
            for envelope, _ in noisy.letters[:FEW]:
                said = answer_until_done(place, envelope)
        place.kill()
        with hidden.watching():
            again = decode_reply(place.site.answer(envelope))
        place.site.close()
    assert same_words(again, said)
    assert hidden.twice == []
    assert len(hidden.seen) > FEW // 2


def test_a_memory_has_what_was_drawn_before_training_and_lately(noisy, tmp_path):
    kept = {}
    for envelopes in (10**9, 3):
        with often(envelopes):
            place = resume(noisy, tmp_path / str(envelopes))
            for envelope, _ in noisy.letters:
                place.site.answer(envelope)
            place.site.close()
            kept[envelopes] = drawn_at(place)
    all_, few = (
        [name for name in kept[each] if name.startswith("sum noise")] for each in (10**9, 3)
    )
    # Of at most two snapshots, and what came after them; how long a run is depends on its noise.
    assert len(few) <= 7 < len(all_)
    assert few == all_[len(all_) - len(few) :]
    before = [name for name in kept[10**9] if not name.startswith("sum noise")]
    assert {*before} <= {*kept[3]}


def test_without_its_newest_snapshot_what_was_drawn_since_the_one_before_is_there(noisy, tmp_path):
    with often(3):
        place = resume(noisy, tmp_path / "north")
        for envelope, _ in middle(noisy):
            said = decode_reply(place.site.answer(envelope))
        place.site.close()
        _, second = snapshots_in(records(place))
        damage(place, second)
        assert same_words(told(place, envelope), said)


@pytest.mark.release
@pytest.mark.parametrize("fate", ["before", "torn", "after", "full"])
def test_a_death_at_every_step_of_a_new_memory(fate, noisy, tmp_path):
    """One by one, all calls that change files in a few letters; drawn at random above."""
    met, number = [], 0
    with often(2):
        while len(met) == number:
            faults, hidden = Faults({number: fate}), Hidden()
            place = resume(noisy, tmp_path / str(number))
            with hidden.watching(), faults.at_work():
                for envelope, _ in noisy.letters[:8]:
                    answer_until_done(place, envelope)
            place.site.close()
            assert hidden.twice == []
            met += faults.met
            number += 1
    # At least two of the journal and one of the memory.
    assert [call for _, call in met].count("replace") >= 3


@pytest.mark.parametrize("fate", some_of(("before", "torn", "after", "full"), "torn"))
def test_a_death_at_every_step_of_a_snapshot_and_of_a_new_file(fate, known, tmp_path):
    """The calls that change files from one snapshot to the next, one after the other."""
    with often(3):
        start = resume(known, tmp_path / "start")
        for envelope, _ in known.letters[:8]:
            start.site.answer(envelope)
        start.site.close()
        met, number = [], 0
        while len(met) == number:
            faults = Faults({number: fate})
            shutil.copytree(tmp_path / "start", tmp_path / str(number))
            place = type(start)(start.name, tmp_path / str(number), known.make)
            hidden = answered_in_spite_of(faults, known, place, known.letters[8:9])
            place.site.close()
            assert hidden.twice == []
            met += faults.met
            number += 1
    # A witness, a snapshot, and a file that is renamed.
    assert [call for _, call in met].count("replace") == 1
    assert number > 8


def test_a_folder_that_cannot_be_written_once_costs_nothing(known, tmp_path, monkeypatch):
    """The journal has its new file by then: a party that is brought back must find itself in it."""
    sync, on, failed = Journal._sync_folder, Party.on, []

    def fails_once(journal):
        if not failed:
            failed.append("folder")
            raise OSError(24, "Too many open files")
        sync(journal)

    def breaks_once(party, phase, message):
        if failed == ["folder"]:
            failed.append("work")
            raise StorageError("the disk is full")
        return on(party, phase, message)

    monkeypatch.setattr(Journal, "_sync_folder", fails_once)
    monkeypatch.setattr(Party, "on", breaks_once)
    with often(3):
        place = resume(known, tmp_path / "north")
        hidden = answered_in_spite_of(Faults({}), known, place, known.letters[:FEW])
        place.site.close()
    assert failed == ["folder", "work"]
    assert hidden.twice == []


def test_the_hunt_finds_a_party_that_is_not_what_it_was(known, site):
    """Else it would find nothing anywhere."""
    restore = PartySnapshots.restore

    def almost(snapshots, place, sealed):
        restore(snapshots, place, sealed)
        graph = Graph(snapshots._party._half, snapshots._outside)
        graph.contents()
        for found in graph.nodes:
            if isinstance(found, np.ndarray) and found.dtype == float and found.flags.writeable:
                found += 1e-3

    envelope, answer = middle(known)[-1]
    with often(3):
        place = resume(known, site.folder.parent / "calm")
        hidden = answered_in_spite_of(Faults({}), known, place, middle(known))
        with hidden.watching(), patch.object(PartySnapshots, "restore", almost):
            site.start()
            found = decode_reply(site.site.answer(envelope))
        place.site.close()
    assert not same_words(found, decode_reply(answer))
    assert hidden.twice


# ── what is on the disk ───────────────────────────────────────────────────────────────────────


def told(place, envelope):
    """What a site that was started again says to an envelope."""
    place.start()
    found = decode_reply(place.site.answer(envelope))
    place.site.close()
    return found


def records(site):
    journal = Journal(site.folder / JOURNAL, lenient=True)
    found = list(journal)
    journal.close()
    return found


def rewrite(site, found):
    """Another journal in the place of the site's."""
    (site.folder / JOURNAL).unlink()
    journal = Journal(site.folder / JOURNAL)
    for record in found:
        journal.append(record)
    journal.close()


def damage(site, place):
    """Flip a bit in the middle of a record."""
    journal = Journal(site.folder / JOURNAL, lenient=True)
    at = journal._ends[place] + journal.size(place, place + 1) // 2
    journal.close()
    content = bytearray((site.folder / JOURNAL).read_bytes())
    content[at] ^= 4
    (site.folder / JOURNAL).write_bytes(content)


def snapshots_in(found):
    return [place for place, record in enumerate(found) if record.startswith(SNAPSHOT)]


def test_a_journal_holds_two_snapshots_and_nothing_before_them(known, site):
    found = records(site)
    first, second = snapshots_in(found)
    assert found.index(b"ground") == first - 1
    assert second < len(found) - 1
    envelope, answer = middle(known)[-1]
    assert same_words(told(site, envelope), decode_reply(answer))


def test_no_key_that_outlives_a_run_is_in_a_snapshot(known, tmp_path):
    opened, save = [], ObjectState.save

    def keep(state):
        opened.append(save(state))
        return opened[-1]

    with often(3), patch.object(ObjectState, "save", keep):
        place = resume(known, tmp_path / "north")
        for envelope, _ in middle(known):
            place.site.answer(envelope)
        keys, party = place.toy._keyring._keys, place.toy
        found = b"".join(records_of(place))
        place.site.close()
    assert opened
    secrets = [keys.run.reveal(), *private_bytes(keys.identity)]
    assert len(secrets) >= 2
    for state in opened:
        assert party._keyring._pad_key.reveal() in state
        assert not any(secret in state for secret in secrets)
        assert state[:64] not in found
        assert party._keyring._pad_key.reveal() not in found


def records_of(place):
    with (place.folder / JOURNAL).open("rb") as file:
        return [file.read()]


def private_bytes(identity):
    found = [value for value in vars_of(identity) if isinstance(value, Secret)]
    return [value.reveal() for value in found]


def vars_of(thing):
    return [getattr(thing, name) for name in attributes_of(thing)]


def test_damage_before_the_newest_snapshot_does_no_harm(known, site):
    envelope, answer = middle(known)[-1]
    first, second = snapshots_in(records(site))
    for place in (first, first + 1, second - 1):
        damage(site, place)
    assert same_words(told(site, envelope), decode_reply(answer))


def test_without_its_newest_snapshot_a_party_goes_on_from_the_one_before(known, site):
    hidden = Hidden()
    envelope, answer = middle(known)[-1]
    _, second = snapshots_in(records(site))
    damage(site, second)
    with hidden.watching():
        found = told(site, envelope)
        assert same_words(found, decode_reply(answer))
        following, answer = known.letters[len(middle(known))]
        assert same_words(told(site, following), decode_reply(answer))
    assert hidden.twice == []


@pytest.mark.parametrize("where", ["set-up", "ground", "tail"])
def test_other_damage_is_one_sentence(where, known, site):
    found = records(site)
    _, second = snapshots_in(found)
    damage(site, {"set-up": 3, "ground": found.index(b"ground"), "tail": second + 1}[where])
    said = told(site, middle(known)[-1][0])
    assert isinstance(said, Failed)
    assert "is damaged; give the run up with --forget" in said.reason
    assert "restore nothing" in said.reason


def test_an_older_journal_in_the_place_of_the_newest_is_refused(known, site, tmp_path):
    """Its owner restored it from a backup, or somebody swapped it."""
    with often(3):
        older = resume(known, tmp_path / "older")
        for envelope, _ in known.letters[:7]:
            older.site.answer(envelope)
        older.site.close()
        envelope = middle(known)[-1][0]
        # The journal alone: what the run drew knows better.
        shutil.copy(older.folder / JOURNAL, site.folder / JOURNAL)
        said = told(site, envelope)
        assert isinstance(said, Failed)
        assert "is an older copy" in said.reason
        # Both: the coordinator has had more answers.
        shutil.copy(older.folder / RANDOMNESS, site.folder / RANDOMNESS)
        said = told(site, envelope)
        assert "has lost its memory" in said.reason


def test_an_older_snapshot_in_the_place_of_the_newest_is_refused(known, site):
    found = records(site)
    first, second = snapshots_in(found)
    # As if what lies between had never been.
    rewrite(site, [*found[: first + 1], *found[second + 1 :]])
    said = told(site, middle(known)[-1][0])
    assert isinstance(said, Failed)
    assert "damaged" in said.reason or "older copy" in said.reason


@pytest.mark.parametrize("part", ["standing", "state"])
def test_a_snapshot_is_bound_to_its_place(part, known, site):
    """What one says of its place belongs to no other state."""
    found = records(site)
    first, second = snapshots_in(found)
    one, other = (msgspec.msgpack.decode(found[at][len(SNAPSHOT) :]) for at in (first, second))
    mixed = [one[0], other[1]] if part == "standing" else [other[0], one[1]]
    found[second] = SNAPSHOT + msgspec.msgpack.encode(mixed)
    rewrite(site, found)
    said = told(site, middle(known)[-1][0])
    assert isinstance(said, Failed)


def test_a_party_that_cannot_be_saved_is_repeated_as_before(known, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with often(3), patch.object(Party, "snapshots", Unsaved()):
        place = resume(known, tmp_path / "north")
        for envelope, answer in middle(known):
            assert same_words(decode_reply(place.site.answer(envelope)), decode_reply(answer))
        place.site.close()
        assert not snapshots_in(records(place))
        envelope, answer = middle(known)[-1]
        assert same_words(told(place, envelope), decode_reply(answer))
    # Once in each of two processes.
    assert caplog.text.count("cannot be saved (a thread)") == 2


class Unsaved:
    def lay_ground(self):
        raise Opaque("a thread")


# ── coordinators ──────────────────────────────────────────────────────────────────────────────

#: So many exchanges before the end.
DEATHS = {
    ("{0}", 10): "crash after", ("{1}", 9): "killed before", ("{0}", 8): "killed after",
    ("{1}", 6): "crash before", ("{0}", 5): "killed within", ("{0}", 4): "crash after",
}  # fmt: skip


def fates_before(end, names):
    """What happens, in a run of so many exchanges."""
    return {
        (name.format(names[0], names[-1]), end - number): fate
        for (name, number), fate in DEATHS.items()
    }


def compared(outcome):
    result = outcome.result
    rows = [(r.iteration, r.round_trips, r.bytes_up, r.primal, r.dual) for r in result.history]
    return result.certificate, result.notes, rows


@contextmanager
def counting_restored():
    """How often a snapshot was put back, by whose it was."""
    found = Counter()
    party, coordinator = PartySnapshots.restore, CoordinatorSnapshots.restore

    def of_party(snapshots, place, sealed):
        party(snapshots, place, sealed)
        found["party"] += 1

    def of_coordinator(snapshots):
        saved = coordinator(snapshots)
        found["coordinator"] += saved is not None
        return saved

    with (
        patch.object(PartySnapshots, "restore", of_party),
        patch.object(CoordinatorSnapshots, "restore", of_coordinator),
    ):
        yield found


# Deaths in every method are in ``test_deaths_in_every_method.py``.
@pytest.mark.parametrize("solver", some_of(ALGORITHMS, "hyfdca"))
def test_both_sides_die_again_and_again_and_end_with_the_same_bits(solver, tmp_path):
    tiles = held() if ALGORITHMS[solver].cut == "any" else cut_for(solver).parties
    run = settings_for(solver, **({} if ALGORITHMS[solver].spans else {"iterations": 9}))
    names, made = list(tiles), makers(tiles, run)
    with often(2):
        _, calm, *_ = run_over(tmp_path / "calm", tiles, HOW, run, made=made)
        fates, hidden = fates_before(calm.exchanges, names), Hidden()
        with hidden.watching(), counting_restored() as restored:
            outcome, network, transport, crashes, told = run_over(
                tmp_path / "run", tiles, HOW, run, fates, made
            )
    assert restored["party"] >= 1
    # On shares, a coordinator repeats all of its journal.
    assert ALGORITHMS[solver].shares or restored["coordinator"] >= 1
    assert crashes >= 1
    assert "killed before" in transport.met
    assert hidden.twice == []
    alone = Federation(tiles, HOW).train(
        run, through=lambda channel: ReplayedPresence(channel, network.presence)
    )
    if ALGORITHMS[solver].shares:
        return
    assert compared(outcome) == compared(alone)
    # Of every iteration, whoever follows the run hears once that it is new, but for one that was
    # under way when the run stopped.
    new = [number for heard in told for number, repeated in heard if not repeated]
    assert len(new) <= len(outcome.result.history) + len(told) - 1


class Killing(MemoryTransport):
    """Every site is killed before every third letter in training."""

    def fate(self, party, envelope):
        content = decode_envelope(envelope)
        training = isinstance(content, Work) and content.parts[0][0].startswith("hyfdca")
        return "killed before" if training and content.number % 3 == 0 else "fine"


@pytest.mark.release
def test_a_ledger_has_the_same_counts_whoever_was_brought_back(tmp_path, monkeypatch):
    # Book often, so that there is much to book twice.
    monkeypatch.setattr("weft.privacy.ledger.sum_booking._AHEAD", 2)
    run = msgspec.structs.replace(RUN, iterations=4, certify_every=2)
    task = LinearTask(name="a study", parties=("north", "south"), settings=run, preprocessing=HOW)
    keys, found = ephemeral_keys(task.parties), {}
    with often(2), counting_restored() as restored:
        for post in (MemoryTransport, Killing):
            sites = MemberSites(tmp_path / post.__name__, keys, held())
            summary = json.loads((sites.ask(task, post) / "summary.json").read_text())
            model = load_model(sites.folder / "saved" / "north" / "model.npz")
            pages = [Book(sites.folder / f"ledger-{name}", name).read() for name in task.parties]
            found[post] = (
                summary["certificate"],
                model.coef.tobytes(),
                [np.sort(page.received).tolist() for page in pages],
                [np.sort(page.shown).tolist() for page in pages],
                [[run.cohorts for run in page.runs] for page in pages],
            )
    assert restored["party"] > 10
    assert found[MemoryTransport] == found[Killing]
    assert max(found[Killing][2][0]) > 0
