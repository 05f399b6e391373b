"""A run whose letters are known, for a site that dies again and again while it gets them.

Not a test itself. One party's site is put back to where its training began, in a folder of its own,
and sent the envelopes of a calm run; what it hides under which pad is written down.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from toys import Crashed, Killed, MemoryTransport, Place

from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.keys import ephemeral_keys
from weft.errors import PartyAway
from weft.federation import coordinator as coordination
from weft.federation.party import Party
from weft.guards import OPEN
from weft.network import (
    absent_parties,
    coordinator_snapshots,
    journaled_party_of_run,
    site_snapshots,
)
from weft.network.envelope_bytes import Work, Worked, decode_envelope, decode_reply
from weft.network.network_channel import NetworkChannel
from weft.storage import journal as journal_module
from weft.storage.journal import Journal


@dataclass
class Hidden:
    """What was hidden under each pad and mask, by whom."""

    seen: dict = field(default_factory=dict)
    twice: list = field(default_factory=list)

    def note(self, key, packed):
        if self.seen.setdefault(key, packed) != packed:
            self.twice.append(key)

    @contextmanager
    def watching(self):
        sent, once = Cipher._sent, Cipher.answer_once

        def noted(cipher, start, outgoing, packed):
            self.note((cipher.party_name, outgoing.kind, cipher.pad_id), packed)
            return sent(cipher, start, outgoing, packed)

        def told(cipher, question, packed):
            where = question.phase, question.field, question.epoch, question.number
            self.note((cipher.party_name, *where, question.asked), packed)
            return once(cipher, question, packed)

        with (
            patch.object(Cipher, "_sent", noted),
            patch.object(Cipher, "answer_once", told),
        ):
            yield self


@contextmanager
def often(envelopes=3):
    """Snapshots after every few envelopes, a new file each time, and parties are soon back."""
    soon = dict.fromkeys(("_FIRST", "_LONGEST", "_BUSY"), 0.002)
    always = {"_SHARE": 1e9, "_FEW": 1, "_WORTH": 0.0}
    with (
        # Nor by the time that work took, which is another on every machine.
        patch.multiple(site_snapshots, _ENVELOPES=envelopes, _SECONDS=1e12, **always),
        patch.multiple(coordinator_snapshots, _EXCHANGES=envelopes, **always),
        patch.multiple(absent_parties, **soon),
        # Folders are copied here, which a site would find out.
        patch.object(journaled_party_of_run, "is_original", lambda folder: True),
    ):
        yield


class Letters(MemoryTransport):
    """Keeps all letters and their answers."""

    def __init__(self, places):
        super().__init__(places)
        self.kept = []

    def _deliver(self, party, envelope):
        answer = super()._deliver(party, envelope)
        self.kept.append((party, envelope, answer))
        return answer


@dataclass
class Known:
    """A calm run: one party's site as its training began, and what it was sent since."""

    folder: object
    make: object
    name: str
    letters: list
    outcome: object


def makers(tiles, settings):
    """Who makes the party of each name."""
    keys = ephemeral_keys(tuple(tiles))
    readers = {"here": keys[next(iter(tiles))].identity.public}

    def maker(name):
        return lambda request: Party(
            name, tiles[name], keys=keys[name], cipher=settings.cipher, terms=OPEN,
            readers=readers, memory=request.memory,
        )  # fmt: skip

    return {name: maker(name) for name in tiles}


class CrashingPost(MemoryTransport):
    """The coordinator dies before or after some exchanges, or parties do, by number."""

    def __init__(self, places, fates):
        super().__init__(places)
        self.fates, self.met = dict(fates), []

    def fate(self, party, envelope):
        content = decode_envelope(envelope)
        if not isinstance(content, Work):
            return "fine"
        fate = self.fates.pop((party, content.number), "fine")
        if fate != "fine":
            self.met.append(fate)
        return fate


def run_over(folder, tiles, preprocessing, settings, fates=None, made=None):
    """A run to its end, however often its coordinator dies; what came of it."""
    made = made or makers(tiles, settings)
    sites = [Place(name, folder / name, made[name]) for name in tiles]
    transport, crashes, told = CrashingPost(sites, fates or {}), 0, []
    while True:
        journal = Journal(folder / "journal")
        network = NetworkChannel(transport, "run-1", journal, secret=b"0123456789abcdef")
        told.append([])
        try:
            network.hello({"about": settings.to_json()})
            outcome = coordination.coordinate(
                network, preprocessing, settings, run=bytes(range(16)),
                progress=lambda record, network=network: told[-1].append(
                    (record.iteration, network.replaying)
                ),
            )  # fmt: skip
            break
        except Crashed:
            crashes += 1
        except PartyAway:
            # Where nobody may be missing a run is resumed, as after a crash.
            assert len(told) < 30
        finally:
            network.close()
            journal.close()
    for site in sites:
        site.site.close()
    return outcome, network, transport, crashes, told


def calm_run(folder, tiles, preprocessing, settings, *, watched=0):
    """Run it to its end, and keep a copy of the first party's folder where its training began."""
    made = makers(tiles, settings)
    sites = [Place(name, folder / name, made[name]) for name in tiles]
    name, began = list(tiles)[watched], []
    transport = Letters(sites)
    place, deliver = transport.places[name], transport._deliver

    def copying(party, envelope):
        if party == name and not began and getattr(place.toy, "snapshots", None) is not None:
            shutil.copytree(place.folder, folder / "began")
            began.append(len(transport.kept))
        return deliver(party, envelope)

    transport._deliver = copying
    journal = Journal(folder / "journal")
    network = NetworkChannel(transport, "run-1", journal)
    network.hello({"about": settings.to_json()})
    outcome = coordination.coordinate(network, preprocessing, settings, run=bytes(range(16)))
    network.close()
    journal.close()
    for site in sites:
        site.site.close()
    letters = [
        (envelope, answer)
        for party, envelope, answer in transport.kept[began[0] :]
        if party == name and isinstance(decode_envelope(envelope), Work)
    ]
    return Known(folder / "began", made[name], name, letters, outcome)


class Faults:
    """Lets the disk fail, or the process die, at some calls that change files.

    ``fates`` has, by the number of the call, what becomes of it: ``before``, ``after`` or ``torn``
    (the process dies), or ``full`` (the disk is).
    """

    CALLS = ("pwrite", "ftruncate", "replace")

    def __init__(self, fates):
        self.fates, self.count, self.met = dict(fates), 0, []

    @contextmanager
    def at_work(self):
        real = {name: getattr(os, name) for name in self.CALLS}

        def faulty(name):
            def call(*arguments):
                fate = self.fates.get(self.count)
                self.count += 1
                if fate is None:
                    return real[name](*arguments)
                self.met.append((fate, name))
                if fate == "before":
                    raise Killed
                if fate == "full" and name != "ftruncate":
                    raise OSError(28, "No space left on device")
                if fate == "torn" and name == "pwrite":
                    file, content, at = arguments
                    real[name](file, bytes(content)[: len(content) // 2], at)
                    raise Killed
                done = real[name](*arguments)
                if fate in ("after", "torn"):
                    raise Killed
                return done

            return call

        calls = {name: faulty(name) for name in self.CALLS}
        with patch.multiple(journal_module.os, **calls):
            yield self


def resume(known, folder):
    """A site that goes on from where the training of a known run began."""
    shutil.copytree(known.folder, folder)
    return Place(known.name, folder, known.make)


def answer_until_done(place, envelope, most=40):
    """Ask as a coordinator does: again after a death or a full disk, until there is an answer."""
    for _ in range(most):
        try:
            answer = decode_reply(place.site.answer(envelope))
        except Killed:
            place.kill()
            continue
        if isinstance(answer, Worked):
            return answer
        assert answer.kind == "failed", answer
    raise AssertionError("there was no answer")
