"""Where the tests find the original data files, and how often their processes look for garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import typer.main
from hypothesis import settings

# The network's engine looks through all that is loaded before it: it comes first, where it is.
with suppress(ImportError):
    import nvflare  # noqa: F401

from compile_once import compile_once
from hospitals import hospitals, weft
from small_federations import patchwork, quick, simulate, table
from weft.data import Table, load

__all__ = ["hospitals", "patchwork", "quick", "simulate", "table", "weft"]

# Numba compiles on first use, so the first example of a test may take long.
settings.register_profile("release", deadline=None, derandomize=True)
settings.register_profile("change", settings.get_profile("release"), max_examples=8)

# What is imported and collected is never garbage: looking through it took a tenth of all time.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """More examples before a release; and workers share a folder, that of pytest's cache."""
    settings.load_profile("change" if config.option.markexpr else "release")
    if getattr(config, "cache", None) is not None:
        compile_once(config.cache.mkdir("compiling"))


def pytest_collection_finish() -> None:
    """From now on there is garbage, but not among what is there already."""
    gc.freeze()
    gc.enable()
    # Runs leave few cycles: looking for them after every 700 objects took a tenth of all time.
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the test that waits for other processes, so that others fill its pauses."""
    items.sort(key=lambda item: "test_processes" not in item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """A process calls the command line once, tests hundreds of times; each built all commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of figures are empty: for tests that look at something else.

    Drawing takes far longer than training on the few samples of a test.
    """

    def draw_nothing(_: object, path: Path, **how: object) -> None:
        path.write_bytes(b"")

    for name in ("plot_convergence", "plot_path"):
        monkeypatch.setattr(f"weft.report.results_folder.{name}", draw_nothing)
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(
        figure.Figure, "savefig", lambda _, path, **how: Path(path).write_bytes(b"")
    )


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The data directory; where there is one, a missing file fails a test, never skips it."""
    named = os.environ.get("WEFT_DATA")
    if named:
        return Path(named)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    if beside.is_dir():
        return beside
    pytest.skip("no data directory: WEFT_DATA is not set and ../shared/data does not exist")


@pytest.fixture(scope="session")
def mnist(data_dir: Path) -> Table:
    """The training part of MNIST, loaded once."""
    return load("mnist", data_dir)
