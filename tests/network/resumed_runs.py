"""A run whose parties and coordinator die in phases that a test names. Not a test itself."""

from __future__ import annotations

from collections import Counter

from toys import Crashed, UnreliableTransport

from weft.federation.coordinator import coordinate
from weft.federation.release.reader_opens_release import open_release
from weft.network.network_channel import NetworkChannel
from weft.storage.journal import Journal


class FatesByPhase(UnreliableTransport):
    """Lets the first letters of each phase meet its fates, one after the other."""

    def __init__(self, places, fates):
        super().__init__(places, 0)
        self.fates, self.letters = fates, Counter()

    def fates_of(self, work):
        phase = work.parts[0][0]
        number = self.letters[phase]
        self.letters[phase] += 1
        fates = self.fates.get(phase, ())
        return {fates[number] if number < len(fates) else "fine": 1}


def run_to_end(folder, transport, how, settings, run):
    """What came of a run, and how often its coordinator died."""
    crashes = 0
    while True:
        journal = Journal(folder / "journal")
        network = NetworkChannel(transport, "run-1", journal)
        try:
            network.hello({"about": settings.to_json()})
            return coordinate(network, how, settings, run=run), crashes
        except Crashed:
            crashes += 1
        finally:
            network.close()
            journal.close()


def opened(outcome, reader, keys, run):
    """What the reader called "here" opens of it."""
    return open_release(
        outcome.letters["here"],
        outcome.head,
        outcome.settings,
        reader=reader,
        writers={name: each.identity.public for name, each in keys.items()},
        run=run,
    )
