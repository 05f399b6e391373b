"""What Weft uses of the engine's inside is as it was when the code around it was written."""

import hashlib
import inspect
import threading
from importlib import import_module, metadata
from pathlib import Path
from time import monotonic, sleep

import pytest
from nvflare.fuel.f3.streaming.byte_receiver import RxTask

from weft.network.nvflare_processes.engine_internals import (
    INTERNALS,
    forget_messages_by_one_thread,
    growing_pauses,
)
from weft.network.nvflare_processes.shared_timer import SharedTimer

#: The version that these are of, and the beginning of the hash of each source.
KNOWN_VERSION = "2.9.0"
KNOWN = {
    "DefaultJobScheduler.schedule_job": "304e16b7540f",
    "DefaultJobScheduler._exceed_max_jobs": "d0b293bb0684",
    "DefaultJobScheduler._try_job": "adb9c02216d3",
    "JobRunner._start_run": "1f0c4fb166e1",
    "JobRunner._fire_job_lifecycle_event": "07780eaba63b",
    "JobRunner.update_abnormal_finished_jobs": "d4f52f9cd1a3",
    "MainProcessMonitor._start_shutdown": "81af0112cd25",
    "main": "21d6cd8bb8b2",
    "ConnManager.start_connector_task": "6e91947fa9a2",
    "CoreCell.__init__": "a00fa0f096f2",
    "CoreCell.broadcast_multi_requests": "91475d69c56c",
    "RxTask._schedule_remove_task": "c8e56d1be1dc",
    "RxTask._remove_task": "32e8ac61ad0f",
}
NAMES = [(module, name) for module, used in INTERNALS.items() for name in used]


def source_hash(module, name):
    found = import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    found = getattr(found, "__func__", found)
    return hashlib.sha256(inspect.getsource(found).encode()).hexdigest()[:12]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_piece_of_the_engine_is_the_one_that_is_known(module, name):
    """A new engine may change any of them: read it, mend engine_internals, note the new hash."""
    there = metadata.version("nvflare")
    try:
        found = source_hash(module, name)
    except (ImportError, AttributeError):
        pytest.fail(f"nvflare {there} has no {module}.{name}, which {INTERNALS[module][name]}")
    assert found == KNOWN[name], (
        f"nvflare {there} has changed {module}.{name} since {KNOWN_VERSION}: it "
        f"{INTERNALS[module][name]}"
    )


def test_every_known_piece_is_named():
    assert KNOWN.keys() == {name for _, name in NAMES}


def test_no_other_module_reaches_into_the_engine():
    """Underscored names of the engine, and its modules that are changed, are used there only."""
    from weft.network import nvflare_processes

    changed = ("_start_run", "_start_shutdown", "_try_job", "_schedule_remove_task", "MAX_WAIT")
    for folder in nvflare_processes.__path__:
        for path in sorted(Path(folder).glob("*.py")):
            if path.name != "engine_internals.py":
                text = path.read_text(encoding="utf-8")
                assert not [word for word in changed if word in text], path.name


class Received:
    """A message that came in, as the engine keeps it."""

    def __init__(self):
        self.stop_lock = threading.RLock()
        self.cleanup_timer = None
        self.completed_task_ttl = 0.05
        self.removed = threading.Event()

    def _remove_task(self):
        self.removed.set()


def test_messages_that_came_in_take_one_thread_together(monkeypatch):
    monkeypatch.setattr(RxTask, "_schedule_remove_task", None)
    forget_messages_by_one_thread()
    before = threading.active_count()
    messages = [Received() for _ in range(50)]
    for message in messages:
        RxTask._schedule_remove_task(message)
        RxTask._schedule_remove_task(message)
    assert threading.active_count() == before + 1
    assert all(message.removed.wait(5.0) for message in messages)


def test_pauses_of_a_client_that_connects_grow_to_those_of_the_engine():
    slept = []
    pause = growing_pauses(slept.append)
    for _ in range(20):
        pause(1.0)
    assert slept[0] < 0.05
    assert sum(slept[:4]) < 0.5
    # Else it would look again and again for as long as it runs.
    assert slept[-5:] == [1.0] * 5


def test_later_calls_are_made_in_order_of_time_and_not_when_cancelled():
    timer, made, over = SharedTimer("calls"), [], threading.Event()

    def fail():
        made.append("failed")
        raise ValueError

    timer.call_later(0.2, over.set)
    timer.call_later(0.1, lambda: made.append("second"))
    timer.call_later(0.02, fail)
    timer.call_later(0.05, lambda: made.append("never")).cancel()
    began = monotonic()
    assert over.wait(5.0)
    assert monotonic() - began >= 0.15
    sleep(0)
    assert made == ["failed", "second"]
