"""The clock of a run: it begins with the first message, and goes on after a checkpoint."""

from weft.protocol import LocalChannel, Reading
from weft.solvers.run_loop import Clock
from weft.solvers.solver_interfaces_and_results import Record, Result


class Told(LocalChannel):
    """A channel whose time is told."""

    now = 0.0

    @property
    def elapsed(self):
        return self.now


def test_matching_counts_as_time_of_the_run():
    channel = Told({"north": lambda phase, message: {}})
    channel.now = 5.0
    clock = Clock(channel, Result())
    channel.now = 7.0
    assert clock.record(1, 1, None).wall_seconds == 7.0


def test_a_run_that_goes_on_adds_to_its_time_and_does_not_match_twice():
    channel = Told({"north": lambda phase, message: {}})
    channel.now = 5.0
    done = Result(history=[Record(4, 1, 9, 0, 0, 0.0, wall_seconds=20.0)])
    clock = Clock(channel, done, Reading())
    channel.now = 8.0
    assert clock.record(5, 1, None).wall_seconds == 23.0
