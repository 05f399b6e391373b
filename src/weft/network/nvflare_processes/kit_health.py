"""What may keep a kit from working, looked at before somebody is called: each with a mend."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from typing import Literal

import msgspec
import psutil
from cryptography import x509

from weft import __version__
from weft.errors import ConfigError
from weft.network.kits.certificates import format_day
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.port_and_coordinator_checks import (
    Unreachable,
    check_coordinator,
    check_port_free,
)
from weft.network.process_pulse import read_pulse

#: Days left of a certificate, bytes of disk and memory, below which somebody should act.
_DAYS, _DISK, _MEMORY = 30, 1e9, 5e8
#: Bytes of disk below which runs stop.
_NO_DISK = 5e7

State = Literal["good", "soon", "bad"]


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    Attributes
    ----------
    about
        What it is about, in a word.
    state
        ``good``; ``soon`` if it works now and will not for long; ``bad``.
    found, mend
        What was found, and what to do about it; nothing where it is good.
    """

    about: str
    state: State
    found: str
    mend: str = ""


def examine_kit(kit: Kit, *, running: bool = False) -> list[Symptom]:
    """Look at everything, also where something is bad.

    Parameters
    ----------
    running
        Whether a process is expected to run with the kit, and to be connected.
    """
    found = [*_certificates(kit), _closed(kit), _disk(kit), _memory(), _versions(), _reach(kit)]
    return [*found, examine_process(kit)] if running else found


def examine_machine(kit: Kit) -> list[Symptom]:
    """What can be looked at every few seconds, and names no path."""
    return [*_certificates(kit), _disk(kit), _memory(), _versions()]


def examine_process(kit: Kit) -> Symptom:
    """Whether ``weft serve`` or ``weft join`` lives, and is connected."""
    if kit.kind == "submitter":
        raise ConfigError(
            f"nothing runs with the kit of a submitter; ask about a coordinator's or a site's kit, "
            f"or leave --running out for {kit.path}"
        )
    command = "weft serve" if kit.kind == "coordinator" else "weft join"
    pulse, now = read_pulse(kit.home), time.time()
    if pulse is None:
        said, mend = f"{command} does not run", f"start {command}"
    elif not pulse.alive(now):
        said = f"{command} has given no sign of life for {now - pulse.beat:.0f} s"
        mend = f"start {command} again, and look at what its log says last"
    elif not pulse.well:
        said = f"{command}: {pulse.sentence}"
        mend = "look at its log, and at the coordinator's, if that lasts"
    else:
        return Symptom(about="process", state="good", found=f"{command}: {pulse.sentence}")
    return Symptom(about="process", state="bad", found=said, mend=mend)


def _certificates(kit: Kit) -> Iterator[Symptom]:
    now = datetime.now(UTC)
    anew = "ask the organiser of the federation for a new kit"
    for about, path in (("certificate", kit.certificate), ("authority", kit.authority)):
        found = x509.load_pem_x509_certificate(path.read_bytes())
        begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
        if now < begins:
            yield Symptom(
                about="clock",
                state="bad",
                found=f"it says {now:%Y-%m-%d %H:%M} UTC, but the {about} begins on "
                f"{begins:%Y-%m-%d %H:%M}",
                mend="set the clock of this machine, and keep it set (NTP)",
            )
            continue
        days = (ends - now).days
        state: State = "bad" if now >= ends else "soon" if days < _DAYS else "good"
        said = f"valid until {format_day(ends)}, {days} days from now"
        yield Symptom(about=about, state=state, found=said, mend=anew if state != "good" else "")


def _closed(kit: Kit) -> Symptom:
    try:
        Kit.open(kit.path)
    except ConfigError as error:
        return Symptom(about="kit", state="bad", found=str(error), mend="do what the sentence says")
    if not os.access(kit.path, os.W_OK | os.X_OK):
        mend = "give the kit to the user that runs Weft"
        return Symptom(about="kit", state="bad", found="its folder cannot be written", mend=mend)
    return Symptom(about="kit", state="good", found="whole, and closed to other users")


def _disk(kit: Kit) -> Symptom:
    free = shutil.disk_usage(kit.path).free
    state: State = "bad" if free < _NO_DISK else "soon" if free < _DISK else "good"
    mend = "" if state == "good" else "make room: runs write down every message before they go on"
    return Symptom(about="disk", state=state, found=f"{free / 1e9:.1f} GB free", mend=mend)


def _memory() -> Symptom:
    free = psutil.virtual_memory().available
    short = free < _MEMORY
    return Symptom(
        about="memory",
        state="soon" if short else "good",
        found=f"{free / 1e9:.1f} GB available",
        mend="end other programs, or give the machine more" if short else "",
    )


def _versions() -> Symptom:
    engine = metadata.version("nvflare")
    return Symptom(about="versions", state="good", found=f"Weft {__version__}, engine {engine}")


def _reach(kit: Kit) -> Symptom:
    """A coordinator listens, or could; everybody else reaches it, each side trusting the other."""
    where = f"{kit.host}:{kit.port}"
    if kit.kind == "coordinator":
        try:
            check_port_free(kit)
            said = f"nobody listens on port {kit.port}: weft serve can"
        except ConfigError:
            said = f"port {kit.port} is in use, by weft serve if it runs"
        return Symptom(about="coordinator", state="good", found=said)
    try:
        check_coordinator(kit)
    except Unreachable as error:
        mend = "start weft serve there, or have address, port and firewall checked"
        return Symptom(about="coordinator", state="bad", found=str(error), mend=mend)
    except ConfigError as error:
        mend = "do what the sentence says"
        return Symptom(about="coordinator", state="bad", found=str(error), mend=mend)
    said = f"{where} answers, and both certificates count"
    return Symptom(about="coordinator", state="good", found=said)
