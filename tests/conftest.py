"""How tests are run: how many examples, who compiles, how often processes look for garbage.

Fixtures that many tests use are in ``hospitals.py``, ``small_federations.py`` and
``shared_fixtures.py``, which only those processes load that run tests.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

# Numba compiles on first use, so the first example of a test may take long.
settings.register_profile("release", deadline=None, derandomize=True)
settings.register_profile("change", settings.get_profile("release"), max_examples=6)

# What is imported and collected is never garbage: looking through it took a tenth of all time.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-times", action="store_true", help="what tests cost, at the end")


def pytest_configure(config: pytest.Config) -> None:
    """More examples before a release; and workers share a folder, that of pytest's cache."""
    settings.load_profile("change" if config.option.markexpr else "release")
    if config.option.processor_times:
        times = import_module("processor_times").ProcessorTimes()
        config.pluginmanager.register(times, "processor times")
    worker: str = getattr(config, "workerinput", {}).get("workerid", "")
    if not worker and getattr(config.option, "numprocesses", None):
        # This process hands tests out and runs none: what they need took it seconds to load.
        return
    hypothesis_start = import_module("hypothesis_start")
    hypothesis_start.tell_intervals()
    if config.option.markexpr:
        hypothesis_start.draw_no_literals()
    # The network's engine looks through all that is loaded before it: it comes first.
    # In a fresh environment, what is imported is compiled. One worker begins with the largest
    # library, which others come to last: then they find each other's work.
    for library in ("nvflare", *(("torch",) if worker == "gw0" else ())):
        with suppress(ImportError):
            import_module(library)
    for fixtures in ("hospitals", "small_federations", "shared_fixtures"):
        config.pluginmanager.import_plugin(fixtures)
    if getattr(config, "cache", None) is not None:
        import_module("compile_once").compile_once(config.cache.mkdir("compiling"))
    if worker == "gw1" and config.args == config.getini("testpaths"):
        _import_from_the_end(config.rootpath / "tests")


def _import_from_the_end(tests: Path) -> None:
    """Import all tests before they are collected, the last ones first.

    In a fresh clone, pytest rewrites the asserts of whatever it imports, and keeps the result. Two
    workers that begin at different ends do half of that each.
    """
    for path in sorted(tests.rglob("test_*.py"), reverse=True):
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        # What cannot be imported says so when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(path.stem)


def pytest_collection_finish() -> None:
    """From now on there is garbage, but not among what is there already."""
    gc.freeze()
    gc.enable()
    # Runs leave few cycles: looking for them after every 700 objects took a tenth of all time.
    gc.set_threshold(100_000, 20, 20)
