"""Where the tests find the original data files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.data import Table, load


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
