"""Trains with the Weft that is installed, on three small tables made here, and checks the model.

``make wheel`` runs it in a new environment: ``python packaging/use_wheel.py WEFT``, where WEFT is
the command that was installed there.
"""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

PARTIES = ("north", "south", "west")
ROWS, GAP = 30, 1e-3
CONFIG = f"""
name = "study"
[data]
id = "id"
label = "outcome"
scaling = "standard"
[model]
loss = "logistic"
lambda = 0.1
[solver]
gap = {GAP}
"""


def write_study(folder: Path) -> Path:
    """Tables of three parties, and the config of a run."""
    draw = random.Random(0)
    for number, party in enumerate(PARTIES):
        with (folder / f"{party}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["id", "age", "dose", "outcome"])
            for row in range(ROWS):
                age, dose = draw.gauss(50, 10), draw.gauss(3, 1)
                ill = (age - 50) / 10 - (dose - 3) + draw.gauss(0, 0.5) > 0
                name = f"p{number * ROWS + row}"
                table.writerow([name, f"{age:.1f}", f"{dose:.2f}", "ill" if ill else "well"])
    config = folder / "study.toml"
    parties = "".join(f'[[party]]\nname = "{party}"\nfile = "{party}.csv"\n' for party in PARTIES)
    config.write_text(CONFIG + parties, encoding="utf-8")
    return config


def main() -> None:
    weft = str(Path(sys.argv[1]).absolute())
    subprocess.run([weft, "--version"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        config, out = write_study(Path(folder)), Path(folder) / "out"
        subprocess.run([weft, "train", str(config), "--out", str(out)], check=True, cwd=folder)
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        if summary["certificate"]["gap"] > GAP or not (out / "report.html").is_file():
            raise SystemExit("the model is not certified, or there is no report")


if __name__ == "__main__":
    main()
