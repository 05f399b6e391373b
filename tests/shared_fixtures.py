"""Where the tests find the original data files, and what spares them time. Not a test itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
import typer.main

from weft import cli
from weft.array_types import Floats
from weft.data import Table, load
from weft.network.kits import certificates
from weft.solvers.secret_sharing import label_leak_of_gradient


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """A process calls the command line once, tests hundreds of times; each built all commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        # The same object for the same command, or nothing would be found again.
        patch.setattr(cli, "_alone", cache(cli._alone))
        yield


@pytest.fixture(scope="session", autouse=True)
def _disk_not_waited_for() -> Iterator[None]:
    """Tests kill processes, not machines: what was written is there, and disks take their time.

    What is flushed before it counts is told in ``storage/test_what_lasts.py``. Processes that tests
    start do wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        for sync in ("fdatasync", "fsync"):
            patch.setattr(os, sync, lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _keys_checked_once() -> Iterator[None]:
    """A private key is checked whenever it is read, for 40 ms; tests read the same ones again and
    again. A key never changes: equal bytes are the same key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            certificates, "load_pem_private_key", cache(certificates.load_pem_private_key)
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def _tables_judged_once() -> Iterator[None]:
    """A party of a sealed run judges its columns before it begins, once; a site that dies does so
    anew, and tests train on the same tables again and again. Equal cells are judged alike."""
    judged: dict[tuple[bytes, tuple[int, ...], float, float], bool] = {}
    judge = label_leak_of_gradient.tells_labels

    def known(cells: Floats, bits: float, digits: float) -> bool:
        table = (sha256(cells.tobytes()).digest(), cells.shape, bits, digits)
        if table not in judged:
            judged[table] = judge(cells, bits, digits)
        return judged[table]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_leak_of_gradient, "tells_labels", known)
        yield


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of figures are empty: for tests that look at something else.

    Drawing takes far longer than training on the few samples of a test.
    """

    def draw_nothing(_: object, path: Path, **how: object) -> None:
        path.write_bytes(b"")

    monkeypatch.setattr("weft.report.results_folder.plot_path", draw_nothing)
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(
        figure.Figure, "savefig", lambda _, path, **how: Path(path).write_bytes(b"")
    )


@pytest.fixture
def rough_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn, but matplotlib places nothing, which takes it half of the time."""
    engine = pytest.importorskip("matplotlib.layout_engine").ConstrainedLayoutEngine
    monkeypatch.setattr(engine, "execute", lambda _, figure: None)


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
