"""The process in which a site works: opens it, answers letters, ends with its connection."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from weft.errors import DataError, WeftError
from weft.network.nvflare_processes.event_log_files import start_event_log
from weft.network.nvflare_processes.no_memory_growth import share_pools
from weft.network.nvflare_processes.site_process_frames import (
    FIRST,
    MOST_LETTERS,
    MOST_PINGS,
    Frame,
    Opening,
    receive_frame,
    send_frame,
)
from weft.storage.atomic_files import StorageError

if TYPE_CHECKING:
    # Loaded where a process works, not where it waits.
    from weft.network.exposure_metrics import ExposureMetrics
    from weft.network.kits.kit_folder import Kit
    from weft.network.saved_join_settings import JoinSettings
    from weft.network.site_answers_envelopes import Site

#: One for every letter that comes, so that none waits for others, and one for the owner.
_THREADS = MOST_LETTERS + MOST_PINGS + 1


def work_for_site(connection: socket.socket, settings: JoinSettings, kit: Kit) -> None:
    """Open a site and answer letters until nobody listens any more.

    It ends without closing anything: its files are such that it may be killed at any time.
    """
    os.umask(0o077)
    _write_output_to(kit.home / "engine.log")
    share_pools()
    notes: list[str] = []
    try:
        site = _open(settings, kit, notes)
    except WeftError as error:
        _say(connection, _failure(error))
        return
    start_event_log(kit, settings.log)
    from weft.network.exposure_metrics import ExposureMetrics

    exposure = ExposureMetrics(kit.home / "ledger", kit.name)
    _say(connection, Opening(notes))
    _answer_all(connection, site, exposure)


def _open(settings: JoinSettings, kit: Kit, notes: list[str]) -> Site:
    from weft.network.open_site import open_site

    return open_site(settings, kit, notes.append)


def _failure(error: WeftError) -> Opening:
    if isinstance(error, DataError):
        told = error.harmless or "has data that do not fit; its own log says which"
        return Opening(wrong=str(error), kind="refused", told=told)
    # A disk may have room again, or be back, the next time.
    kind = "failed" if isinstance(error, StorageError) else "refused"
    return Opening(wrong=str(error), kind=kind, told=error.told)


def _say(connection: socket.socket, opening: Opening) -> None:
    send_frame(connection, Frame(FIRST, msgspec.json.encode(opening)))


def _write_output_to(path: Path) -> None:
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)


def _answer_all(connection: socket.socket, site: Site, exposure: ExposureMetrics) -> None:
    sending = Lock()

    def answer(frame: Frame) -> None:
        if frame.owner:
            reply = msgspec.json.encode(exposure.metrics())
        else:
            reply = site.answer(frame.content)
        with sending:
            send_frame(connection, Frame(frame.number, reply))

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="weft letter") as threads:
        while (frame := receive_frame(connection)) is not None:
            threads.submit(answer, frame)
        # Whoever asked is gone, and with it all that is under way here.
        os._exit(0)
