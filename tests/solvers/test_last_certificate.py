"""Before the last certificate, whoever is away is waited for, as long as patience lasts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.protocol import Failure, Replies, Request
from weft.solvers.run_loop import wait_for_certificate


class Channel:
    """One party answers the others; west is away until some moment."""

    def __init__(self, back, elapsed):
        self.elapsed, self.back, self.asked = elapsed, back, 0

    def pause(self, seconds):
        self.elapsed += seconds

    def ask(self, phase, messages):
        self.asked += 1
        replies = Replies("certify.losses")
        if self.elapsed >= self.back:
            replies.answered["west"] = "all that was missing"
        else:
            replies.missing["west"] = Failure("failed", "is not connected")
        return replies


def closing(back, patience, elapsed=0.0):
    """Whether the certificate came, how long it took, and what was noted."""
    frozen = SimpleNamespace(waiting={"west"}, certificate=None)
    notes = []
    run = SimpleNamespace(
        channel=Channel(back, elapsed),
        settings=SimpleNamespace(patience=patience),
        participation=SimpleNamespace(present=lambda iteration: ("west",)),
        iteration=7,
        acknowledge=lambda request: None,
        note_missing=lambda missing: None,
        note=notes.append,
    )

    def take(replies):
        if replies.answered:
            frozen.certificate = "proof"

    request = Request(SimpleNamespace(name="certify.losses"), {"west": None})
    found = wait_for_certificate(run, frozen, lambda present: request, take)
    return found, run.channel, notes


def test_patience_begins_with_the_last_questions_however_long_training_took():
    found, channel, _ = closing(612.0, patience=30.0, elapsed=600.0)
    assert found
    assert 612.0 <= channel.elapsed <= 613.0


@pytest.mark.parametrize("back", [0.0, 12.0])
def test_a_party_that_comes_back_within_patience_is_part_of_the_certificate(back):
    found, channel, notes = closing(back, patience=30.0)
    assert found
    assert back <= channel.elapsed <= back + 1.0
    # It is asked now and then, not all the time.
    assert channel.asked < 25
    assert notes == []


def test_one_that_stays_away_is_not_waited_for_any_longer_and_named():
    found, channel, notes = closing(1e9, patience=30.0)
    assert not found
    assert 30.0 <= channel.elapsed <= 31.0
    assert notes == ["no certificate for the last iterate: west did not answer"]
