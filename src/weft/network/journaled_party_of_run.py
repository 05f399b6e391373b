"""One run at a site: its journal and its party, which can be rebuilt from the journal."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock
from time import perf_counter

import weft.all_messages  # noqa: F401 - a site must know every phase that can come.
from weft.errors import ProtocolError, WeftError
from weft.network.answered_envelope_numbers import EnvelopeNumbers
from weft.network.envelope_bytes import Hello, Work, Worked, decode_envelope, encode
from weft.network.event_lines import OWN
from weft.network.journal_of_random_draws import RandomnessStore
from weft.network.party_interface import OpenedParty, OpenParty, PartyRequest, snapshots_of
from weft.network.site_resume_refusals import (
    another_plan,
    another_question,
    has_left,
    lost_memory,
    overtaken,
    restored,
)
from weft.network.site_snapshots import GROUND, SNAPSHOT, SiteSnapshots, Standing
from weft.network.versions import check_version
from weft.protocol import Fields, fields_of, pack, phase_named, unpack
from weft.protocol.signed_transcript_hash import reply_hash, split_hashes
from weft.report.json_safe_and_rounded_values import rounded
from weft.storage.atomic_files import StorageError
from weft.storage.copied_folder_check import is_original, mark_origin
from weft.storage.journal import Journal

log = logging.getLogger("weft.site")

#: After an envelope in the journal: it was answered. Hashes of its replies follow.
_ANSWERED = b"answered"
#: In the place of an envelope that this party refused: it answers nothing more in this run.
_LEFT = b"left"
#: Files in a run's folder.
JOURNAL, _RANDOMNESS = "journal.weft", "randomness.weft"
#: What keeps a party from being ready.
_WORKING = "is still at work on what it was asked before"
RETURNING = "is being brought back from its journal"


class SiteRun:
    """One run at a site; ``lock`` must be held around every call.

    An envelope is written to the journal before it is worked on. If the work fails, the envelope is
    dropped and the party is rebuilt from the journal: an envelope counts fully or not at all.

    A refusal by the party is no such failure. Whoever may ask again, a little differently, can find
    out by trying what is refused, or forge a block until one passes its check: the party leaves the
    run for good, also after a restart, and whatever comes next is answered by one and the same
    sentence. A full disk is no fault of the sender: that work is taken up again.

    Parameters
    ----------
    run
        Name of the run.
    folder
        Of this run alone.
    open_party
        Makes the party.
    """

    def __init__(self, run: str, folder: Path, open_party: OpenParty) -> None:
        self.run = run
        self.lock = Lock()
        #: When somebody asked for it last, by the clock of `weft.network.clock`.
        self.asked = 0.0
        #: Why the last attempt to rebuild the party failed.
        self.trouble = ""
        #: What the holder of the lock is doing.
        self.doing = _WORKING
        self._folder = folder
        self._open_party = open_party
        self._opened: OpenedParty | None = None
        self._plan = b""
        #: Numbers of all envelopes that it was sent.
        self._numbers = EnvelopeNumbers()
        #: The last of them, and the reply to it, while the party is in memory.
        self._work: Work | None = None
        self._reply = b""
        #: Hashes of the replies in it, and, by number, of those that were sent last.
        self._said: list[bytes] = []
        self._sent: dict[int, list[bytes]] = {}
        #: Whether the last of them was answered: then its reply may have left.
        self._answered = False
        #: Whether the party refused what it was asked last, and whether it has left.
        self._refused = self._left = False
        self._journal = Journal(folder / JOURNAL, lenient=True)
        try:
            self._memory = RandomnessStore(folder / _RANDOMNESS)
        except BaseException:
            self._journal.close()
            raise
        self._snapshots = SiteSnapshots(run, self._journal, self._memory)
        try:
            self._read()
            self._check_origin()
        except BaseException:
            self.leave()
            raise

    @property
    def begun(self) -> bool:
        return bool(self._plan)

    @property
    def ready(self) -> bool:
        """Whether the party is in memory."""
        return self._opened is not None

    @property
    def last(self) -> int:
        """Number of the last envelope."""
        return self._numbers.last

    def worked_since(self, last: int, number: int | None = None) -> list[int]:
        """Numbers of envelopes after ``last`` and before ``number``."""
        return self._numbers.between(last, number)

    def begin(self, hello: Hello) -> Fields:
        """Open the party of a new run; it answers with its announcement."""
        opened = self._open_party(PartyRequest(self.run, unpack(hello.plan), self._memory))
        mark_origin(self._folder)
        self._journal.append(encode(hello))
        self._plan, self._opened = hello.plan, opened
        return opened.announcement

    def resume(self, hello: Hello) -> Fields:
        """The announcement once more, for the same plan."""
        self._check_left()
        if hello.plan != self._plan:
            raise another_plan(self.run)
        return self.rebuild().announcement

    def work(self, work: Work, packed: bytes) -> bytes:
        """The reply to an envelope, also given as it came; the same again to the same envelope."""
        self._check_left()
        self._check_memory(work)
        if work.number == self.last:
            self.rebuild()
            self._check_same(work)
            if not self._answered or self._said != self._sent.get(work.number):
                # The work was interrupted, and is answered only now; or the party was made anew,
                # and its letters are sealed anew.
                self._note_answer(work.number)
            return self._reply
        opened = self.rebuild(heard=work.last)
        self._journal.append(packed)
        self._numbers.add(work.number)
        self._answered = False
        # If anything interrupts the work, this party must not be used again.
        self._opened = None
        began = perf_counter()
        try:
            self._reply = self._answer(opened, work)
            self._note_answer(work.number)
        except Exception:
            self._take_back()
            raise
        self._snapshots.advance(
            snapshots_of(opened), perf_counter() - began, lambda: self._standing(work, packed)
        )
        self._work, self._opened = work, opened
        return self._reply

    def _standing(self, work: Work, packed: bytes) -> Standing:
        """Where the party stands after an envelope; what came before is not looked at again."""
        self._numbers = self._numbers.shortened(work.last)
        self._sent = {work.number: self._said}
        numbers = self._numbers
        return Standing(self.run, numbers.dropped, numbers.listed, packed, self._reply, self._said)

    def rebuild(self, heard: int | None = None) -> OpenedParty:
        """The party, rebuilt from the journal if it is not in memory.

        Parameters
        ----------
        heard
            Number of the last envelope whose answer the coordinator has. If the last one of the
            journal is later and cannot be worked on, it is dropped.
        """
        if self._opened is None:
            self.doing = RETURNING
            try:
                self._opened = self._replay()
            except _Unfinished as unfinished:
                # An answered envelope counts even if its reply was lost: the cause must pass
                # before the run can go on.
                heard_of = heard is None or self.last <= heard
                if self._answered or (heard_of and not self._refused):
                    raise unfinished.error from None
                self._take_back()
                self._check_left()
                self._opened = self._replay()
            finally:
                self.doing = _WORKING
        return self._opened

    def close(self, heard: int) -> None:
        """The party's run is over; the site's log says what it has exposed, and what else."""
        member = self.rebuild(heard).member
        exposed: str = getattr(member, "exposure", "")
        for said in getattr(member, "remarks", ()):
            log.info("run %s: %s", self.run, said, extra=OWN)
        member.close()
        if exposed:
            log.info("run %s: exposed: %s", self.run, exposed, extra=OWN)

    def leave(self) -> None:
        """The process ends: let another one open the run's files."""
        self._journal.close()
        self._memory.close()

    def delete(self) -> None:
        """Delete everything that is kept of the run."""
        self.leave()
        try:
            shutil.rmtree(self._folder)
        except OSError as error:
            raise StorageError(
                f"{self._folder} cannot be deleted ({error.strerror or error}); delete it by hand"
            ) from None

    # ── the journal ───────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        """Read the journal without doing its work."""
        damaged: list[tuple[int, int]] = []
        whole = True
        for place, record in enumerate(self._journal):
            if not record:
                damaged.append((place, len(self._numbers)))
            elif record == _LEFT:
                self._left = True
            elif record == GROUND:
                self._snapshots.found_ground(place)
            elif record.startswith(SNAPSHOT):
                stood = self._snapshots.found(place, record)
                self._numbers = EnvelopeNumbers(stood.dropped, list(stood.numbers))
                self._sent, self._answered, whole = {self.last: stood.said}, True, True
            else:
                whole = self._read_envelope(record) and whole
        self._snapshots.check(damaged, len(self._numbers))
        if not whole:
            raise self._journal.damaged()

    def _read_envelope(self, record: bytes) -> bool:
        """One that was sent, or that it was answered; false: one is missing before it."""
        self._answered = record.startswith(_ANSWERED)
        if self._answered:
            self._sent[self.last] = split_hashes(record[len(_ANSWERED) :])
            return True
        envelope = decode_envelope(record)
        if isinstance(envelope, Hello):
            # This site may have been updated meanwhile.
            check_version(envelope.weft, f"the coordinator of run {self.run}")
            self._plan = envelope.plan
        elif isinstance(envelope, Work):
            known = self._knows(envelope)
            self._numbers.add(envelope.number)
            self._snapshots.found_envelope()
            return known
        return True

    def _knows(self, work: Work) -> bool:
        """Whether all answers that an envelope speaks of are those to envelopes in the journal."""
        heard = self._numbers.count_up_to(work.last)
        return heard >= work.answered and (not work.last or work.last in self._numbers)

    def _check_origin(self) -> None:
        """Refuse to go on from an older state: what it drew since would be drawn again."""
        if self.begun and not is_original(self._folder):
            raise restored(self.run, self._folder)

    def _note_answer(self, number: int) -> None:
        """Write down that an envelope was answered, before the reply leaves."""
        self._journal.append(_ANSWERED + b"".join(self._said), durable=False)
        self._sent[number], self._answered = self._said, True

    def _check_memory(self, work: Work) -> None:
        """Refuse to continue if either side has lost part of the run."""
        if work.number < self.last:
            raise overtaken(self.run, work, self.last)
        if not self._knows(work):
            raise lost_memory(self.run, work, self._numbers.count_up_to(work.last))

    def _check_same(self, work: Work) -> None:
        if self._work is None or work.parts != self._work.parts:
            raise another_question(self.run, work)

    def _check_left(self) -> None:
        if self._left:
            raise has_left(self.run)

    def _take_back(self) -> None:
        """Drop the last envelope; the party it changed is not used again."""
        self._journal.drop_last()
        self._numbers.take_back()
        # All before it were answered, or they would have been dropped.
        self._answered = True
        if self._refused:
            # On the disk before anybody is told why.
            self._journal.append(_LEFT)
            self._left = True

    # ── the party ─────────────────────────────────────────────────────────────────────────

    def _replay(self) -> OpenedParty:
        """A new party, taken through the envelopes of the journal, or from its newest snapshot."""
        began = perf_counter()
        opened = self._open_party(PartyRequest(self.run, unpack(self._plan), self._memory))
        strict: Callable[[], AbstractContextManager[None]]
        strict = getattr(opened.member, "replaying", nullcontext)
        self._work, open_, repeated = None, False, 0
        with strict():
            for record in self._snapshots.needed():
                if record == GROUND or not record.startswith((_ANSWERED, _LEFT)):
                    # Whatever comes next, the envelope before it was worked on.
                    if open_ and self._work is not None:
                        self._reply = self._answer(opened, self._work)
                        repeated += 1
                    open_ = self._take(opened, record)
        if open_ and self._work is not None:
            # The last one may have been interrupted.
            try:
                self._reply = self._answer(opened, self._work)
            except Exception as error:
                raise _Unfinished(error) from error
            repeated += 1
        self._snapshots.repeated(perf_counter() - began)
        if self._work is not None:
            log.info(
                "run %s: brought back from its journal, %d exchange(s) of %d repeated in %.1f s",
                self.run, repeated, len(self._numbers), perf_counter() - began,
            )  # fmt: skip
        return opened

    def _take(self, opened: OpenedParty, record: bytes) -> bool:
        """Lay the ground, take a snapshot, or an envelope; returns whether that is to be done."""
        if record == GROUND:
            self._snapshots.lay_again(snapshots_of(opened))
            return False
        if record.startswith(SNAPSHOT):
            stood = self._snapshots.restore(snapshots_of(opened), record)
            work = decode_envelope(stood.work)
            self._work = work if isinstance(work, Work) else None
            self._reply, self._said = stood.reply, stood.said
            return False
        envelope = decode_envelope(record)
        self._work = envelope if isinstance(envelope, Work) else None
        return self._work is not None

    def _answer(self, opened: OpenedParty, work: Work) -> bytes:
        # Of a replay, an earlier failure says nothing about this envelope.
        self._refused = False
        self._settle(opened, work)
        replies: list[bytes] = []
        seconds: list[float] = []
        for name, packed in work.parts:
            # One by one: what is asked first may load the solver that declares what comes next.
            phase = phase_named(name)
            message = phase.read_request(unpack(packed))
            began = perf_counter()
            try:
                reply = opened.member.on(phase, message)
            except WeftError as error:
                self._refused = not isinstance(error, StorageError)
                raise
            # Exact times would tell how large its table is.
            seconds.append(rounded(perf_counter() - began))
            if type(reply) is not phase.reply:
                raise ProtocolError(f"its reply to phase '{name}' is no message of this phase")
            replies.append(pack(fields_of(reply)))
        worked = self.worked_since(work.last, work.number)
        self._said = [reply_hash(reply) for reply in replies]
        return encode(Worked(work.number, replies, seconds, worked))

    def _settle(self, opened: OpenedParty, work: Work) -> None:
        """Tell a party that signs for what it saw what became of its last replies."""
        settle = getattr(opened.member, "settle", None)
        if settle is None:
            return
        last = self._numbers.before(work.number)
        settle(self._sent.get(last, []) if last <= work.last else None)


class _Unfinished(Exception):
    """The last envelope of a journal cannot be worked on; all earlier ones could."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
