"""Two hospitals with their tables and config on file, and the command line run in this process."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from weft.cli import main


@dataclass
class Outcome:
    """What one run of the command line gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def weft(capsys, monkeypatch, tmp_path):
    """Runs ``weft ARGUMENTS`` inside an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run


CONFIG = """
name = "two hospitals"

[data]
id = "patient"
label = "outcome"
unit_rows = true

[model]
loss = "hinge"
lambda = 1e-2

[solver]
gap = 1e-2
iterations = 500

[privacy]
allow_pairs = true
allow_exposure = true
allow_lone_labels = true

[[party]]
name = "north"
file = "north.csv"

[[party]]
name = "south"
file = "south.csv"
"""


class Hospitals:
    """Two parties with 40 common samples: north has age and weight, south has two markers.

    Columns are standard already: scaling takes a third of so short a run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        patients = [f"n{number:03d}" for number in range(40)]
        outcome = np.where(rng.random(40) < 0.5, "well", "ill")
        outcome[:2] = ["well", "ill"]
        tilt = np.where(outcome == "ill", 1.0, -1.0)[:, None]
        values = rng.normal(size=(40, 4)) + 0.8 * tilt
        base = pd.DataFrame({"patient": patients, "outcome": outcome})
        self.north = base.assign(age=values[:, 0], weight=values[:, 1])
        self.south = base.assign(marker=values[:, 2], pressure=values[:, 3])
        self.config = CONFIG

    def change(self, old: str, new: str) -> None:
        """Replace a piece of the config, which must be there."""
        assert old in self.config
        self.config = self.config.replace(old, new)

    def write(self) -> Path:
        """Write the files; returns the config's path."""
        self.north.to_csv(self.folder / "north.csv", index=False)
        self.south.to_csv(self.folder / "south.csv", index=False)
        path = self.folder / "config.toml"
        path.write_text(self.config, encoding="utf-8")
        return path


@pytest.fixture
def hospitals(tmp_path):
    folder = tmp_path / "hospitals"
    folder.mkdir()
    return Hospitals(folder)
