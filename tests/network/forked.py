"""``weft`` commands in processes that are forked from one which has loaded everything. No test.

Loading Weft and the engine takes a process seconds of a processor, and a federation has many.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from unittest.mock import patch

from compile_once import FOLDER, compile_once
from weft.cli import main

#: What parties and the coordinator load before anything happens.
_LOADED = (
    "nvflare.private.fed.app.server.server_train",
    "nvflare.private.fed.app.client.client_train",
    "weft.network.nvflare_processes.serve_and_join",
    "weft.network.nvflare_processes.client_party",
    "weft.network.open_site",
    "weft.network.linear_job",
    "weft.federation.party",
    "weft.solvers.hyfdca.party",
    "forked",
)


class ForkedProcess:
    """A process as :mod:`subprocess` has them."""

    def __init__(self, program, arguments, log):
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=_begin, args=(program, arguments, str(log)))
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


@contextmanager
def ready(**environment):
    """One process, with these variables, that others are forked from."""
    # It outlives the others, so that it must not be taken for one of them.
    resource_tracker.ensure_running()
    with patch.dict(os.environ, environment):
        multiprocessing.get_context("forkserver").set_forkserver_preload(list(_LOADED))
        forkserver.ensure_running()
    try:
        yield
    finally:
        # Whoever ended all processes has waited for this one too.
        with suppress(ChildProcessError):
            forkserver._forkserver._stop()
        forkserver._forkserver._forkserver_pid = None


def _begin(program, arguments, log):
    """Do what ``python PROGRAM ARGUMENTS`` does, as the leader of a session, into a log."""
    os.setsid()
    for path, flags, targets in (
        (os.devnull, os.O_RDONLY, (0,)),
        (log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, (1, 2)),
    ):
        file = os.open(path, flags, 0o600)
        for target in targets:
            os.dup2(file, target)
        os.close(file)
    if compiling := os.environ.get(FOLDER):
        compile_once(Path(compiling))
    if program == ("-m", "weft"):
        main(list(arguments))
    sys.argv = [*program, *arguments]
    runpy.run_path(program[0], run_name="__main__")
