"""Leaving an optional field out of a request never switches a check off.

A lying coordinator may leave out whatever a message need not have. Runs of every family of solvers
are followed; before a party answers a request, a copy of it is asked the same request without one
of its optional fields, for every phase and field that occurs. The copy must refuse, except where
the absence is a request of its own: `MODES` in ``absences.py`` says which, and what is asked then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from absences import RUNS, TRY_COMMON


def test_a_request_without_an_optional_field_is_refused_or_asks_for_something_else(request):
    script = Path(__file__).with_name("absences.py")
    compiling = request.config.cache.mkdir("compiling")
    ended = subprocess.run(
        [sys.executable, script, compiling],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(ended.stdout)
    assert found.keys() == RUNS.keys()
    assert {run: told["answered"] for run, told in found.items() if told["answered"]} == {}
    for run, told in found.items():
        assert told["tried"] >= (12 if run in TRY_COMMON else 2), run
