"""What long-lived processes load and keep while nothing happens."""

import os
import resource
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

from kitted import kit_of

from weft.crypto.keys import new_keys
from weft.network.nvflare_processes import no_memory_growth, serve_and_join

#: Libraries and rooms that only a run, or a site with its tables, needs.
_OF_RUNS = ("numba", "llvmlite", "pandas", "pyarrow", "scipy", "sklearn", "tenseal", "torch",
            "weft.data", "weft.federation", "weft.losses", "weft.sums")  # fmt: skip
#: MB of an idle coordinator that has loaded all this, without pages of files: about 42.
_MOST = 60

#: MB of a site that waits, connected to nobody, without pages of files: about 45.
_MOST_OF_SITE = 65

_COORDINATOR = """
import nvflare
import weft.cli.join_runs_as_site, weft.network.nvflare_processes.engine_internals
import weft.network.nvflare_processes.serve_and_join, weft.network.nvflare_processes.run_scheduler
import nvflare.private.fed.app.server.server_train
"""
#: ``weft join`` up to the moment when it is connected; its own process has read the table by then.
_SITE = """
import sys
import weft.network.nvflare_processes.serve_and_join as processes
from weft.cli import main
def wait(kit, site, *more):
    import weft.network.nvflare_processes.client_party
    import weft.network.nvflare_processes.engine_internals
    import nvflare.private.fed.app.client.client_train
    processes.site_heart(kit, site, None)
    site.close()
processes.join = wait
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert ended.code == 0
"""


def loaded(program, *arguments):
    """MB and modules of a new process that has run a program, and its limit for core dumps.

    Without pages of files: how many of these are in memory depends on how the kernel keeps them.
    """
    say = (
        "import psutil, resource, sys\nused = psutil.Process().memory_info()\n"
        "print(max(resource.getrlimit(resource.RLIMIT_CORE)))\n"
        "print((used.rss - used.shared) // 10**6, *sys.modules)"
    )
    *_, core, said = subprocess.run(
        [sys.executable, "-c", program + say, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    megabytes, *modules = said.split()
    return int(megabytes), {*modules}, int(core)


def test_a_coordinator_that_waits_for_runs_loads_nothing_that_only_runs_need():
    megabytes, modules, _ = loaded(_COORDINATOR)
    assert not modules & {*_OF_RUNS}
    assert megabytes <= _MOST


def test_a_site_that_waits_for_runs_loads_nothing_that_only_runs_need(place, tmp_path):
    """Its table is read, and refused if need be, by a process that ends where nothing is asked."""
    kit = shutil.copytree(kit_of(place, "south"), tmp_path / "kit")
    (tmp_path / "table.csv").write_text("id,age,y\na,1,0\nb,2,1\nc,3,1\n")
    new_keys(tmp_path / "keys", ["north", "south"])
    told = {"--data": tmp_path / "table.csv", "--id": "id", "--label": "y"}
    named = [word for pair in {**told, "--keys": tmp_path / "keys"}.items() for word in pair]
    megabytes, modules, core = loaded(_SITE, "join", kit, *named)
    assert "weft.network.secure_session" in modules
    assert not modules & {*_OF_RUNS} - {"weft.data"}
    assert megabytes <= _MOST_OF_SITE
    assert core == 0


def test_a_coordinator_that_crashes_leaves_no_copy_of_its_memory_on_disk(monkeypatch):
    """Nor do the processes of its runs, which have its limits."""
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:

        def say(_):
            limits = resource.getrlimit(resource.RLIMIT_CORE)
            os.write(tell, b"none" if limits == (0, 0) else b"some")
            os._exit(0)

        monkeypatch.setattr(serve_and_join, "check_port_free", say)
        serve_and_join.serve(None, None)
        os._exit(1)
    os.close(tell)
    assert os.read(told, 4) == b"none"
    os.close(told)
    os.waitpid(pid, 0)


class Circle:
    """Something that only refers to itself, as the engine leaves behind."""

    def __init__(self):
        self.itself, self.gone = self, GONE

    def __del__(self):
        self.gone.set()


GONE = threading.Event()


def test_garbage_is_collected_however_few_objects_there_are(monkeypatch):
    monkeypatch.setattr(no_memory_growth, "COLLECTED_EVERY", 0.01)
    looks = []

    def wait(seconds):
        looks.append(seconds)
        if len(looks) > 1:
            raise SystemExit

    # Of that module alone: threads that other tests leave behind sleep too.
    monkeypatch.setattr(no_memory_growth, "time", SimpleNamespace(sleep=wait))
    Circle()
    with suppress(SystemExit):
        no_memory_growth._collect()
    assert GONE.is_set()
    assert looks == [0.01, 0.01]


def test_other_c_libraries_than_glibc_are_no_obstacle(monkeypatch):
    monkeypatch.setattr(no_memory_growth.ctypes, "CDLL", lambda _: object())
    no_memory_growth.share_pools()
    no_memory_growth.return_large_blocks()
