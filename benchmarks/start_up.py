"""What it costs to begin: processes that name an estimator, or train on a small table.

All seconds are of the processor, of whole processes, the least of some. Beside each stands one that
loads only the libraries that it cannot do without, in the same run: arrays, to name an estimator;
scikit-learn's base class, from which every estimator that is made derives; the compiler and the
tables of a training. Seconds differ from machine to machine, and the ratio hardly does.

Bytecode and machine code are kept from one process to the next, as where Weft is installed: to
compile them is no part of the seconds.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from harness import Number, Report
from weft.config.write_split_federation import write_federation
from weft.data import SPLITS, Table

#: What ``weft train`` loads whatever Weft does: compiled loops, with the linear algebra that numba
#: wants for its first one, ids and files, the command line.
LIBRARIES = "import numba, pandas, scipy.sparse, scipy.linalg, pyarrow.csv, typer, rich"
ROWS, COLUMNS = 500, 10


@dataclass(frozen=True)
class Beginning:
    """A process that begins, what it cannot do without, and how many times that it may cost."""

    name: str
    command: tuple[str, ...]
    needs: str
    most: float
    #: Whether it is worth a smoke run.
    quick: bool = False


def beginnings(config: Path) -> list[Beginning]:
    own = ("--out", "results", "--ledger", "ledger", "--quiet")
    train = ("-m", "weft", "train", str(config), *own)
    return [
        Beginning("import weft", ("-c", "import weft"), "pass", 3.0, quick=True),
        Beginning(
            "from weft import HybridClassifier",
            ("-c", "from weft import HybridClassifier"),
            "import numpy, scipy.sparse",
            1.5,
        ),
        Beginning(
            "HybridClassifier()",
            ("-c", "from weft import HybridClassifier\nHybridClassifier()"),
            "import sklearn.base",
            1.2,
        ),
        Beginning(f"weft train, {ROWS} rows", train, LIBRARIES, 2.5),
    ]


def seconds_of(arguments: Sequence[str], where: Path) -> float:
    """Processor seconds of one fresh process."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    # Every process is in a folder of its own, where a training leaves its results.
    with TemporaryDirectory(dir=where) as folder:
        paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
        kept = {"PYTHONPYCACHEPREFIX": str(where / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, **kept, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return spent() - before


def small_federation(folder: Path) -> Path:
    """A small table cut into four parties' files; the path of its config."""
    draws = np.random.default_rng(0)
    cells = draws.standard_normal((ROWS, COLUMNS))
    scores = cells @ draws.standard_normal(COLUMNS) + draws.logistic(size=ROWS)
    ids, features = (
        np.array([f"{letter}{n}" for n in range(count)], dtype=object)
        for letter, count in (("s", ROWS), ("x", COLUMNS))
    )
    table = Table(ids, features, cells, (scores > 0).astype(np.int64), "classification")
    pieces = SPLITS["grid"](table, k=2, q=2)
    write_federation(
        folder, pieces, name="small", suffix="csv", id_column="id", label_column="label"
    )
    return folder / "config.toml"


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report(
        "Start-up, in processor seconds of fresh processes",
        "the libraries alone",
        arguments,
        {"times": Number(5, 1, "processes of each kind, of which the least counts")},
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        for one in beginnings(small_federation(folder)):
            if (report.smoke and not one.quick) or not report.wants(one.name):
                continue
            # The first of each compiles what the others find.
            for first in (one.command, ("-c", one.needs)):
                seconds_of(first, folder)
            pairs = [
                (seconds_of(one.command, folder), seconds_of(("-c", one.needs), folder))
                for _ in range(int(report.number("times")))
            ]
            took, least = (min(side) for side in zip(*pairs, strict=True))
            report.add(one.name, took, "s", anchor=least)
            report.add(f"{one.name}, over its libraries", took / least, "×", bar=one.most)
    report.close()


if __name__ == "__main__":
    main()
