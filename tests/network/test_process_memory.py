"""What long-lived processes load and keep while nothing happens."""

import subprocess
import sys
import threading
import time
from contextlib import suppress

from weft.network.engine import process_memory

#: Libraries and rooms that only a run, or a site with its tables, needs.
_OF_RUNS = ("numba", "llvmlite", "pandas", "pyarrow", "scipy", "sklearn", "tenseal", "torch",
            "weft.data", "weft.federation", "weft.losses", "weft.sums")  # fmt: skip
#: MB of an idle coordinator that has loaded all this, without pages of files: about 42.
_MOST = 60

#: Libraries that sites need only where a run asks for them, or never.
_OF_NO_RUN = ("sklearn", "torch", "matplotlib", "onnx", "openpyxl", "duckdb")
#: MB of a site that has loaded all it needs, without pages of files: about 137.
_MOST_OF_SITE = 165

_COORDINATOR = """
import nvflare
import weft.cli.network, weft.network.engine.engine_internals
import weft.network.engine.serve_and_join, weft.network.engine.server_only_jobs
import nvflare.private.fed.app.server.server_train
"""
_SITE = """
import nvflare
import weft.cli.network, weft.network.engine.client_party, weft.network.engine.serve_and_join
import weft.network.open_site
import nvflare.private.fed.app.client.client_train
"""


def loaded(program):
    """MB and modules of a new process that has run a program.

    Without pages of files: how many of these are in memory depends on how the kernel keeps them.
    """
    say = (
        "import psutil, sys\nused = psutil.Process().memory_info()\n"
        "print((used.rss - used.shared) // 10**6, *sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program + say], capture_output=True, text=True, check=True
    ).stdout
    megabytes, *modules = said.split()
    return int(megabytes), {*modules}


def test_a_coordinator_that_waits_for_runs_loads_nothing_that_only_runs_need():
    megabytes, modules = loaded(_COORDINATOR)
    assert not modules & {*_OF_RUNS}
    assert megabytes <= _MOST


def test_a_site_that_waits_for_runs_loads_nothing_that_no_run_needs():
    """What reads its tables and what runs compile with is in its one process from the start."""
    megabytes, modules = loaded(_SITE)
    assert not modules & {*_OF_NO_RUN}
    assert megabytes <= _MOST_OF_SITE


class Circle:
    """Something that only refers to itself, as the engine leaves behind."""

    def __init__(self):
        self.itself, self.gone = self, GONE

    def __del__(self):
        self.gone.set()


GONE = threading.Event()


def test_garbage_is_collected_however_few_objects_there_are(monkeypatch):
    monkeypatch.setattr(process_memory, "_COLLECTED_EVERY", 0.01)
    looks = []

    def wait(seconds):
        looks.append(seconds)
        if len(looks) > 1:
            raise SystemExit

    monkeypatch.setattr(time, "sleep", wait)
    Circle()
    with suppress(SystemExit):
        process_memory._collect()
    assert GONE.is_set()
    assert looks == [0.01, 0.01]


def test_other_c_libraries_than_glibc_are_no_obstacle(monkeypatch):
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda _: object())
    process_memory.share_pools()
    process_memory.return_large_blocks()
