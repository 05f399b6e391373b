"""Sites: every envelope is worked on once, by a party that outlives its process."""

from __future__ import annotations

import json
import logging
import stat
import threading

import psutil
import pytest
from toys import Killed, Place, Toy, ToyRequest, flipped, toy

from weft.errors import ConfigError, DataError
from weft.network import clock
from weft.network import journaled_party_of_run as siterun
from weft.network.envelope_bytes import (
    End,
    Ended,
    Failed,
    Garbled,
    Hello,
    Ping,
    Pong,
    Welcome,
    Work,
    Worked,
    decode_reply,
    encode,
)
from weft.network.party_interface import OpenedParty
from weft.network.site_answers_envelopes import Site
from weft.protocol import fields_of, pack, unpack
from weft.storage.atomic_files import StorageError

RUN = "run-1"
PLAN = pack({"about": "a test"})
WORK = toy("work")


@pytest.fixture
def place(tmp_path):
    return Place("north", tmp_path / "north")


def ask(place, envelope):
    return decode_reply(place.site.answer(encode(envelope)))


def work(number, answered=0, last=0, run=RUN, **message):
    return Work(run, number, answered, last, [(WORK.name, pack({"number": number, **message}))])


def begin(place, run=RUN):
    reply = ask(place, Hello.of(run, PLAN))
    assert isinstance(reply, Welcome)
    return reply


def refusal(reply, kind="refused"):
    assert isinstance(reply, Failed)
    assert reply.kind == kind
    assert "\n" not in reply.reason
    return reply.reason


def test_the_same_envelope_again_gives_the_same_bytes_and_no_work(place):
    begin(place)
    first = place.site.answer(encode(work(1)))
    assert place.site.answer(encode(work(1))) == first
    assert place.toy.calls == 1


def test_a_restarted_site_is_where_it_was(place):
    begin(place)
    replies = [ask(place, work(n, n - 1, n - 1)) for n in (1, 2, 3)]
    state = place.toy.state
    place.kill()
    again = ask(place, work(3, 2, 2))
    assert (again.number, again.replies) == (replies[-1].number, replies[-1].replies)
    assert place.toy.state == state
    assert place.toy.calls == 3


def files_open(folder):
    """Files below a folder that this process has open."""
    return [file.path for file in psutil.Process().open_files() if str(folder) in file.path]


def test_a_run_that_nobody_asks_for_rests_on_disk_and_comes_back(place, monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(clock, "now", lambda: seconds[0])
    begin(place)
    replies = [ask(place, work(n, n - 1, n - 1)) for n in (1, 2, 3)]
    state, resting = place.toy.state, place.folder / "runs" / RUN
    seconds[0] += 800
    assert ask(place, Ping(RUN)) == Pong(True)
    seconds[0] += 800
    begin(place, "run-2")
    assert len(files_open(resting)) == 2
    seconds[0] += 200
    begin(place, "run-3")
    assert files_open(resting) == []
    assert len(files_open(place.folder / "runs" / "run-2")) == 2
    again = ask(place, work(3, 2, 2))
    assert again.replies == replies[-1].replies
    assert place.toy.state == state
    assert isinstance(ask(place, work(4, 3, 3)), Worked)


def test_a_run_that_is_worked_on_does_not_rest(place, monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(clock, "now", lambda: seconds[0])
    begin(place)
    seconds[0] += 10_000
    with place.site._runs[RUN].lock:
        begin(place, "run-2")
    assert len(files_open(place.folder / "runs" / RUN)) == 2


def test_a_party_killed_within_an_envelope_works_on_it_whole(place):
    begin(place)
    ask(place, work(1))
    place.toy.dies = True
    with pytest.raises(Killed):
        place.site.answer(encode(work(2, 1, 1)))
    place.kill()
    alone = Toy("north")
    for number in (1, 2):
        expected = alone.on(WORK, ToyRequest(number=number))
    assert unpack(ask(place, work(2, 1, 1)).replies[0]) == fields_of(expected)


def test_it_says_what_it_worked_on_without_being_heard(place):
    begin(place)
    for number in (1, 2, 4):
        ask(place, work(number, 1, 1) if number > 1 else work(1))
    reply = ask(place, work(6, 1, 1))
    assert reply.worked == [2, 4]
    assert ask(place, End(RUN, True, 1)).worked == [2, 4, 6]


def test_what_came_too_late_is_refused(place):
    begin(place)
    ask(place, work(5))
    assert "is past exchange 4 here, at 5" in refusal(ask(place, work(4)))
    assert place.toy.calls == 1


def test_another_question_under_the_same_number_is_refused(place):
    begin(place)
    ask(place, work(1))
    assert "but for something else" in refusal(ask(place, work(1, other=True)))


@pytest.mark.parametrize(
    ("answered", "last"), [(3, 2), (2, 3), (1, 3)], ids=["too many", "later", "unknown"]
)
def test_a_site_that_has_lost_its_memory_says_so(place, answered, last):
    begin(place)
    for number in (1, 2):
        ask(place, work(number, number - 1, number - 1))
    reason = refusal(ask(place, work(5, answered, last)))
    assert "has lost its memory of run run-1" in reason
    assert place.toy.calls == 2


def test_a_site_whose_folder_is_gone_says_so(place, tmp_path):
    begin(place)
    ask(place, work(1))
    new = Place("north", tmp_path / "elsewhere")
    assert "has lost its memory of run run-1" in refusal(ask(new, work(2, 1, 1)))
    assert "was not asked to take part" in refusal(ask(new, work(1)))


@pytest.mark.parametrize("restart", [False, True])
def test_hello_again_resumes_with_the_same_plan_only(place, restart):
    first = begin(place)
    ask(place, work(1))
    state = place.toy.state
    if restart:
        place.kill()
    assert begin(place) == first
    assert place.toy.state == state
    assert "another plan" in refusal(ask(place, Hello.of(RUN, pack({"about": "else"}))))


def test_what_fails_counts_as_not_done(place, caplog):
    begin(place)
    ask(place, work(1))
    state = place.toy.state
    reason = refusal(ask(place, work(3, 1, 1, fail="break")), "failed")
    # The text of an exception may hold data: it stays in the site's own log.
    assert reason == "broke down (KeyError); its own log says more"
    assert "a secret value" in caplog.text
    assert ask(place, Ping(RUN)).ready is False
    assert begin(place)
    assert place.toy.state == state
    assert ask(place, work(4, 1, 1)).worked == []
    # Only the first phase of two was fine: neither counts.
    parts = [("work", pack({})), ("work", pack({"fail": "break"}))]
    refusal(ask(place, Work(RUN, 5, 2, 4, parts)), "failed")
    assert ask(place, work(6, 2, 4)).worked == []


#: Kinds of refusals, and what is told of the first one.
REFUSALS = {
    "lie": "fails its check",
    "refuse": "does not do that",
    "unfit": "its own log says which",
}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("fail", REFUSALS)
def test_a_party_that_refused_answers_nothing_more_in_that_run(place, fail, restart):
    """A second try would be an oracle: forge a block until one passes its check."""
    begin(place)
    begin(place, "run-2")
    ask(place, work(1))
    assert REFUSALS[fail] in refusal(ask(place, work(2, 1, 1, fail=fail)))
    if restart:
        place.kill()
    told = {refusal(ask(place, question)) for question in (
        work(2, 1, 1, fail=fail), work(2, 1, 1), work(3, 1, 1), work(1), Hello.of(RUN, PLAN),
    )}  # fmt: skip
    assert len(told) == 1
    assert "has left run run-1" in told.pop()
    assert ask(place, work(1, run="run-2")).number == 1
    assert ask(place, End(RUN, False, 1)).worked == []


@pytest.mark.parametrize("fail", REFUSALS)
def test_a_kill_at_the_wrong_moment_gives_no_second_try(place, fail):
    begin(place)
    ask(place, work(1))
    place.toy.dies = True
    with pytest.raises(Killed):
        place.site.answer(encode(work(2, 1, 1, fail=fail)))
    place.kill()
    for number in (2, 3):
        assert "has left run run-1" in refusal(ask(place, work(number, 1, 1)))


def test_what_a_full_disk_stopped_is_worked_on_when_it_is_asked_again(tmp_path):
    class Full(Toy):
        def on(self, phase, message):
            reply = super().on(phase, message)
            if (tmp_path / "full").exists():
                raise StorageError("the disk is full; make room")
            return reply

    site = Site(tmp_path / "site", lambda request: OpenedParty(Full("north")))
    site.answer(encode(Hello.of(RUN, PLAN)))
    site.answer(encode(work(1)))
    (tmp_path / "full").touch()
    reply = decode_reply(site.answer(encode(work(2, 1, 1))))
    assert refusal(reply, "failed") == "the disk is full; make room"
    # Nor can it be brought back while the disk is full; nothing is forgotten for that.
    refusal(decode_reply(site.answer(encode(work(3, 1, 1)))), "failed")
    (tmp_path / "full").unlink()
    alone = Toy("north")
    for number in (1, 2):
        expected = alone.on(WORK, ToyRequest(number=number))
    reply = decode_reply(site.answer(encode(work(2, 1, 1))))
    assert unpack(reply.replies[0]) == fields_of(expected)


def test_a_journal_that_cannot_be_written_stops_the_work(place, monkeypatch):
    begin(place)

    def full(self, record):
        raise StorageError("the journal of the run cannot be written")

    with monkeypatch.context() as patched:
        patched.setattr(siterun.Journal, "append", full)
        assert "cannot be written" in refusal(ask(place, work(1)), "failed")
    assert place.toy.calls == 0
    assert isinstance(ask(place, work(1)), Worked)


def test_a_damaged_journal_is_logged_once_and_its_reason_told(place, caplog):
    begin(place)
    for number in (1, 2, 3):
        ask(place, work(number, number - 1, number - 1))
    path = place.folder / "runs" / RUN / siterun.JOURNAL
    place.site.close()
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 4
    path.write_bytes(whole)
    place.start()
    for _ in range(4):
        # Who is asked next hears why; a ping that says so would be repeated for ever.
        assert ask(place, Ping(RUN)) == Pong(True)
        told = refusal(ask(place, work(4, 3, 3)))
        assert told.startswith("its journal of the run is damaged; give the run up")
    assert caplog.text.count("is damaged") == 1
    assert str(path) in caplog.text


def test_nobody_else_is_told_of_samples_columns_or_places_on_the_disk(tmp_path, caplog):
    """They are for the site's own log."""
    troubles = [
        DataError("column 'dose' has no value for sample 's41'"),
        StorageError(f"{tmp_path}/north/ledger/north.npz: cannot be written"),
        RuntimeError("s41"),
    ]
    secrets = ("dose", "s41", str(tmp_path))

    class Troubled(Toy):
        def on(self, phase, message):
            raise troubles[0]

    def open_run(request):
        return OpenedParty(Troubled("north"))

    site = Site(tmp_path / "north", open_run)
    while troubles:
        # A refusal ends a run, so that each is met in one of its own.
        run = f"run-{len(troubles)}"
        decode_reply(site.answer(encode(Hello.of(run, PLAN))))
        reply = decode_reply(site.answer(encode(work(1, run=run))))
        assert not any(secret in reply.reason for secret in secrets), reply
        assert "its own log says" in reply.reason
        assert any(secret in caplog.text for secret in secrets)
        caplog.clear()
        troubles.pop(0)

    def unfit(request):
        raise DataError("row 3 of patients.csv: sample 's41' has the label 7")

    other = Site(tmp_path / "south", unfit)
    reply = decode_reply(other.answer(encode(Hello.of(RUN, PLAN))))
    assert "s41" not in refusal(reply)
    assert "patients" not in refusal(reply)


def test_damage_and_other_versions_are_told_in_a_sentence(place):
    packed = encode(Hello.of(RUN, PLAN))
    assert isinstance(decode_reply(place.site.answer(flipped(packed))), Garbled)
    assert isinstance(decode_reply(place.site.answer(b"")), Garbled)
    begin(place)
    unreadable = Work(RUN, 1, 0, 0, [("work", b"no message")])
    assert "version's mark" in refusal(ask(place, unreadable))


@pytest.mark.parametrize(
    ("phase", "message", "what"),
    [
        ("elsewhere", {}, "phase 'elsewhere' is not known or comes too early"),
        ("work", {"number": "1"}, "'number' holds str, expected int"),
        ("work", {"numbers": 1}, "'numbers' is not known in this phase"),
        ("match.keys", {"seeds.content": b""}, "'seeds.lengths' is missing"),
    ],
)
def test_a_party_sees_nothing_that_is_not_declared(place, phase, message, what):
    begin(place)
    assert what in refusal(ask(place, Work(RUN, 1, 0, 0, [(phase, pack(message))])))
    assert place.toy is None or place.toy.calls == 0
    assert isinstance(ask(place, work(2)), Worked)


def test_the_end_closes_the_party_deletes_the_folder_and_is_remembered(place, tmp_path):
    begin(place)
    ask(place, work(1))
    folder = tmp_path / "north" / "runs" / RUN
    assert {stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)} == {0o700}
    assert stat.S_IMODE((folder / "journal.weft").stat().st_mode) == 0o600
    toy = place.toy
    assert ask(place, End(RUN, True, 0)) == Ended([1])
    assert toy.closed
    assert not folder.exists()
    place.kill()
    # Whoever did not hear the answer asks again.
    assert ask(place, End(RUN, True, 0)) == Ended([1])
    assert "is over here since 20" in refusal(ask(place, Hello.of(RUN, PLAN)))
    assert "is over here since 20" in refusal(ask(place, work(2, 1, 1)))
    (entry,) = place.site.runs()
    assert (entry.run, entry.how) == (RUN, "over")
    file = tmp_path / "north" / "runs.json"
    assert [run["run"] for run in json.loads(file.read_text())] == [RUN]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_end_of_a_run_closes_its_party_also_after_a_restart(place):
    begin(place)
    ask(place, work(1))
    place.kill()
    ask(place, End(RUN, False, 1))
    assert place.toy.closed
    assert place.toy.calls == 1
    assert place.site.runs()[0].how == "given up"


def test_a_kill_at_the_end_of_a_run_leaves_no_secrets(place, monkeypatch):
    begin(place)
    ask(place, work(1))

    def dies(self):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(siterun.SiteRun, "delete", dies)
        with pytest.raises(Killed):
            ask(place, End(RUN, True, 1))
    folder = place.folder / "runs" / RUN
    assert folder.exists()
    place.kill()
    assert not folder.exists()
    assert ask(place, End(RUN, True, 1)) == Ended([])


def test_runs_are_counted_and_limited(tmp_path):
    place = Place("north", tmp_path / "north", most_runs=2)
    begin(place, "a")
    begin(place, "a")
    ask(place, work(1, run="a"))
    ask(place, End("a", True, 0))
    # Given up before anything was computed: not a run.
    begin(place, "b")
    ask(place, End("b", False, 0))
    # Refused, and given up: what a refusal tells counts as a run.
    begin(place, "c")
    refusal(ask(place, work(1, run="c", fail="refuse")))
    place.kill()
    ask(place, End("c", False, 0))
    assert "takes part in 2 run(s) at most" in refusal(ask(place, Hello.of("d", PLAN)))
    assert not (tmp_path / "north" / "runs" / "d").exists()


def test_a_party_that_will_not_take_part_says_why_and_keeps_nothing(tmp_path):
    def refuse(request):
        raise ConfigError(f"no runs about {request.plan['about']}")

    site = Site(tmp_path / "site", refuse, most_runs=1)
    for run in ("a", "b"):
        reply = decode_reply(site.answer(encode(Hello.of(run, PLAN))))
        assert refusal(reply) == "no runs about a test"
        assert not (tmp_path / "site" / "runs" / run).exists()
    assert site.runs() == []


def test_a_ping_is_answered_while_the_party_works_and_a_second_envelope_waits(tmp_path):
    inside, go_on, order = threading.Event(), threading.Event(), []

    class Slow(Toy):
        def on(self, phase, message):
            inside.set()
            go_on.wait(10)
            order.append(message.number)
            return super().on(phase, message)

    site = Site(tmp_path / "site", lambda request: OpenedParty(Slow("north")))
    site.answer(encode(Hello.of(RUN, PLAN)))
    threads = [threading.Thread(target=site.answer, args=(encode(work(n)),)) for n in (1, 2)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    pong = decode_reply(site.answer(encode(Ping(RUN))))
    assert pong == Pong(False, "is still at work on what it was asked before")
    assert order == []
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == [1, 2]
    assert decode_reply(site.answer(encode(Ping(RUN)))) == Pong(True)


def test_a_ping_brings_a_restarted_party_back_beside_the_run(place):
    begin(place)
    ask(place, work(1))
    place.kill()
    assert ask(place, Ping(RUN)) == Pong(False, "is being brought back from its journal")
    for _ in range(500):
        if ask(place, Ping(RUN)).ready:
            break
        threading.Event().wait(0.01)
    assert ask(place, Ping(RUN)) == Pong(True)
    assert place.toy.calls == 1


def test_every_event_of_a_run_is_one_line_of_log(place, caplog):
    caplog.set_level(logging.INFO, logger="weft.site")
    begin(place)
    ask(place, work(1))
    place.kill()
    ask(place, work(2, 1, 1))
    ask(place, work(1))
    ask(place, End(RUN, True, 2))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines] == ["run run-1"] * 4
    events = [line.split(": ")[1].split(",")[0] for line in lines]
    assert events == ["takes part", "brought back from its journal", "refused", "over"]
    assert not any("\n" in line for line in lines)
