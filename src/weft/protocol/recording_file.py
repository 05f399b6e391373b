"""Recordings: every message of a run in one file that only its owner can read.

.. code-block:: text

    weft messages 1
    frames   length (8 bytes), CRC-32 (4 bytes), content in MessagePack:
      first  whose messages these are, and under which cipher
      then   one a message: its number, phase, party, direction, and the message as it is packed
      last   how many messages there were

Frames are written as the messages cross. A file without its last frame belongs to a run that was
interrupted: resuming the run goes on in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Literal, Self

import msgspec

from weft.errors import ProtocolError, WeftError
from weft.protocol.channel import Recorded
from weft.protocol.declared_message_fields import Fields
from weft.protocol.message_bytes import pack, unpack
from weft.storage.framed_records import CutOff, Damage, framed, read_frames
from weft.thread_safe_decoding import prepared

#: Name of the file in a results folder.
MESSAGES = "messages.weft"

_MAGIC = b"weft messages 1\n"

#: To a party, or from it.
Direction = Literal["down", "up"]


class RecordingError(WeftError):
    """A recording that is missing, damaged or cut off, or cannot be written."""


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="head"):
    """Whose messages a recording holds.

    Attributes
    ----------
    name
        Of the run.
    parties
        In the order of the federation.
    cipher
        The cipher that the run was told to use.
    sees
        What the parties agreed to show the coordinator, as in the settings of a run.
    """

    name: str
    parties: list[str]
    cipher: str
    sees: str = "nothing"


class _Crossed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="message"):
    number: int
    phase: str
    party: str
    direction: Direction
    failure: str
    packed: bytes


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="end"):
    count: int


@dataclass(frozen=True)
class Entry:
    """One message of a recording, in one direction.

    ``failure`` is what the coordinator learnt instead of a usable reply, in words.
    """

    number: int
    phase: str
    party: str
    direction: Direction
    message: Fields
    failure: str = ""


def entries_of(recorded: Sequence[Recorded]) -> Iterator[Entry]:
    """A channel's transcript as the entries that a file would hold."""
    return chain.from_iterable(_both(each, 2 * i) for i, each in enumerate(recorded))


def _both(recorded: Recorded, number: int) -> tuple[Entry, Entry]:
    """The message, and what came back."""
    failure = recorded.failure
    said = "" if failure is None else f"{failure.kind}: {failure.reason}"
    where = recorded.phase, recorded.party
    return (
        Entry(number, *where, "down", recorded.message),
        Entry(number + 1, *where, "up", recorded.reply, said),
    )


class Recorder:
    """Writes a recording; a channel calls it with every message and reply.

    Parameters
    ----------
    path
        The file, which must not be there yet.
    head
        Whose messages it will hold.
    """

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self._count = 0
        with _writing(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o600), "wb")
            self._file.write(_MAGIC)
        self._write(head)

    @classmethod
    def again(cls, path: Path) -> Self:
        """Go on in the recording of a run that was interrupted, after its last whole frame."""
        count, end = 0, 0
        for frame, at in _frames(path, whole=False):
            if isinstance(frame, _End):
                break
            count += isinstance(frame, _Crossed)
            end = at
        if not end:
            raise _cut_off(path, 0)
        recorder = cls.__new__(cls)
        recorder.path, recorder._count = path, count
        with _writing(path):
            recorder._file = path.open("r+b")
            recorder._file.truncate(end)
            recorder._file.seek(end)
        return recorder

    def __call__(self, recorded: Recorded) -> None:
        self._write(
            *(
                _Crossed(e.number, e.phase, e.party, e.direction, e.failure, pack(e.message))
                for e in _both(recorded, self._count)
            )
        )
        self._count += 2

    def finish(self) -> None:
        """Write the last frame: the recording is complete."""
        self._write(_End(self._count))
        with _writing(self.path):
            # What the recording could be made from again is deleted when it is complete.
            os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        """Leave the file as it is, for a run that will be resumed."""
        with _writing(self.path):
            self._file.close()

    def discard(self) -> None:
        """Close and delete the file, whatever state it is in."""
        # What is still to be written may not fit on the disk.
        with suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _write(self, *frames: Head | _Crossed | _End) -> None:
        whole = b"".join(framed(msgspec.msgpack.encode(frame)) for frame in frames)
        with _writing(self.path):
            self._file.write(whole)
            # Also what a killed process had sent must be found here when the run is resumed.
            self._file.flush()


class Recording:
    """A recording on file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    RecordingError
        It is missing or damaged; what is wrong further back shows when it is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        first = next(_frames(path), None)
        if first is None or not isinstance(first[0], Head):
            raise _damaged(path)
        self.head: Head = first[0]

    def entries(self) -> Iterator[Entry]:
        """All messages, one after the other; the file may be larger than memory."""
        count, ended = 0, False
        for frame, _ in islice(_frames(self.path), 1, None):
            if ended or isinstance(frame, Head):
                raise _damaged(self.path)
            if isinstance(frame, _End):
                ended = frame.count == count
                if not ended:
                    raise _damaged(self.path)
            elif frame.number != count:
                raise _damaged(self.path)
            else:
                count += 1
                yield self._entry(frame)
        if not ended:
            raise _cut_off(self.path, count)

    def _entry(self, frame: _Crossed) -> Entry:
        try:
            message = unpack(frame.packed)
        except ProtocolError:
            raise _damaged(self.path) from None
        where = frame.number, frame.phase, frame.party
        return Entry(*where, frame.direction, message, frame.failure)


def _frames(path: Path, *, whole: bool = True) -> Iterator[tuple[Head | _Crossed | _End, int]]:
    """Frames, and where each ends; unless ``whole``, one that is cut off counts as none."""
    decoder = msgspec.msgpack.Decoder(prepared(Head | _Crossed | _End))
    count = 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(_MAGIC)) != _MAGIC:
                raise RecordingError(
                    f"{path} is no recording of messages; name a results folder of a run with "
                    "--record"
                )
            for content, end in read_frames(file, size):
                count += 1
                yield decoder.decode(content), end
    except CutOff:
        if whole:
            raise _cut_off(path, max(0, count - 1)) from None
    except FileNotFoundError:
        raise RecordingError(f"{path} does not exist; train with --record to get one") from None
    except OSError as error:
        raise RecordingError(f"{path} cannot be read ({error.strerror or error})") from None
    except (Damage, msgspec.MsgspecError):
        raise _damaged(path) from None


def _damaged(path: Path) -> RecordingError:
    return RecordingError(
        f"{path} is damaged: what it holds is not what was recorded; copy it again, or repeat the "
        "run with --record"
    )


def _cut_off(path: Path, count: int) -> RecordingError:
    return RecordingError(
        f"{path} is cut off after {count} messages; copy it again, or let the run end ('weft train "
        "… --resume' where it was interrupted, 'weft submit … --resume' over a network)"
    )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what a disk complains of into a sentence."""
    try:
        yield
    except OSError as error:
        raise RecordingError(
            f"{path}: the messages cannot be recorded ({error.strerror or error}); check the "
            "folder's permissions and free space, or go on without --record"
        ) from None
