"""Keys, kits, a roster and tables of the three parties in ``compose.yaml``.

``python packaging/demo_federation.py FOLDER`` makes the folder; run as root it also gives it to the
user of the containers. All keys of a federation in one folder are for trying things out only.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import numpy as np

from weft.data import load
from weft.guards.privacy_terms import OPEN
from weft_examples.local_federation_processes import SUBMITTER, FederationProcesses

#: The user in the containers.
USER = 10001
#: The coordinator's name in the network of the containers, and its port.
HOST, PORT = "coordinator", 8002
#: Rows and columns of a real table that each party holds.
CUTS = {
    "north": ((0, 250), (0, 15)),
    "south": ((0, 250), (15, 30)),
    "west": ((200, 569), (0, 30)),
}
CONFIG = """name = "containers"
[data]
scaling = "standard"
[model]
loss = "logistic"
lambda = 0.01
[solver]
gap = 1e-3
"""


def make(folder: Path) -> Path:
    """The federation; the config of a run is returned."""
    whole = load("breast_cancer").to_tile()
    tiles = {
        name: [whole.rows(np.arange(*rows)).columns(np.arange(*columns))]
        for name, (rows, columns) in CUTS.items()
    }
    # The table is nobody's secret: they agree to what careful parties refuse.
    terms = msgspec.structs.replace(OPEN, matching="oprf")
    made = FederationProcesses(
        folder, tiles, terms=terms, federation="containers", host=HOST, port=PORT
    )
    for name in made.parties:
        place = folder / "sites" / name
        keys = place / "keys"
        # A site gets its own secrets, and what all may know.
        shutil.copytree(made.keys / name, keys / name)
        shutil.copy(made.keys / "public.json", keys)
        shutil.copy(made.roster, keys / "roster.json")
        (place / "tables").mkdir()
        for table in (folder / "tables").glob(f"{name}-*.parquet"):
            shutil.copy(table, place / "tables")
    config = folder / "containers.toml"
    parties = "".join(f'[[party]]\nname = "{name}"\n' for name in made.parties)
    config.write_text(CONFIG + parties, encoding="utf-8")
    return config


def main() -> None:
    folder = Path(sys.argv[1])
    config = make(folder)
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
    print(
        f"Start the containers, let this machine know {HOST} as 127.0.0.1, then\n"
        f"weft submit {folder / 'kits' / SUBMITTER} {config} --out results "
        f"--keys {folder / 'keys'} --party north"
    )


if __name__ == "__main__":
    main()
