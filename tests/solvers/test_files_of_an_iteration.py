"""How many files one iteration of HyFDCA runs through: whoever follows it must open them all.

Counted are files of the library of which at least one function is called between two records of
a run that has warmed up (`sys.setprofile`). A call that only passes on to the next file, a check
that is off, a value that is asked for anew each time: each costs a file. Where the number grows,
look whether the new call is needed in every iteration before the bar is raised.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import weft
from small_federations import make_patchwork
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.run_settings import Settings

LIBRARY = f"{Path(weft.__file__).parent}/"
WARM = 3


def files_of_an_iteration(tiles, cipher):
    """Names of the files that the iteration after the first few runs through."""
    seen = set()

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            seen.add(frame.f_code.co_filename.removeprefix(LIBRARY))

    def follow(record):
        sys.setprofile(watch if record.iteration == WARM else None)

    settings = Settings(solver="hyfdca", lam=1e-2, iterations=WARM + 1, cipher=cipher)
    before = sys.getprofile()
    try:
        Federation(tiles, Preprocessing(scaling="none")).train(settings, progress=follow)
    finally:
        sys.setprofile(before)
    return sorted(seen)


@pytest.mark.parametrize(("cipher", "most"), [("plain", 25), ("pad", 41)])
def test_an_iteration_runs_through_few_files(cipher, most):
    found = files_of_an_iteration(make_patchwork(), cipher)
    assert "solvers/hyfdca/party.py" in found
    assert len(found) <= most, "\n".join(found)
