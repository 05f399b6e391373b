"""A whole federation on this machine, in processes of its own, for trying things out.

What runs is what runs between machines: kits, certificates, ``weft serve`` and ``weft join``. Only
the network is the loopback of this machine, and all files and keys lie in one folder.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from secrets import randbelow

from weft.crypto.keys import load_keys, new_keys
from weft.data.tile import Tile
from weft.data.write_tile_file import write_tile
from weft.guards.privacy_terms import Terms
from weft.network.kits.federation_plan import FederationPlan, Recipient
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.kits.provisioning import provision
from weft.network.process_pulse import read_pulse
from weft.privacy.agreement import Limits, card_of, write_roster
from weft.privacy.agreement.cards_and_roster_drafts import draft_roster
from weft_examples.process_group import ProcessGroup

#: Name of the one who submits runs.
SUBMITTER = "submitter@weft.example"
#: Columns of the tables.
ID, LABEL = "id", "label"


class FederationProcesses(ProcessGroup):
    """A coordinator and parties in a folder; a context at whose end none of them runs any more.

    .. code-block:: text

        FOLDER/keys                     keys of all parties
        FOLDER/roster.json              signed by all
        FOLDER/kits/NAME                kits of the coordinator, the parties and the submitter
        FOLDER/tables/NAME-1.parquet    a party's table; NAME-2.parquet its second, and so on
        FOLDER/logs/NAME.log            what a process printed

    Parameters
    ----------
    folder
        New or empty.
    tiles
        Party name to the tiles it holds. Names are letters, digits, - and _.
    terms, limits
        Of the roster. Ids are matched by ``oprf`` through the first two parties.
    federation
        Its name.
    host, port
        Where its coordinator listens; without a port, at a free one.
    """

    def __init__(
        self,
        folder: Path,
        tiles: Mapping[str, Sequence[Tile]],
        *,
        terms: Terms | None = None,
        limits: Limits | None = None,
        federation: str = "trial",
        host: str = "localhost",
        port: int | None = None,
    ) -> None:
        for name in ("logs", "tables"):
            (folder / name).mkdir(parents=True, mode=0o700)
        super().__init__(folder / "logs")
        self.folder = folder
        self.parties = tuple(tiles)
        self.host, self.port = host, free_port() if port is None else port
        self.terms, self.limits = terms or Terms(matching="oprf"), limits
        #: When processes were started: only what they showed later counts.
        self._started: dict[str, float] = {}
        self._labelled = [
            name for name, held in tiles.items() if any(tile.labels is not None for tile in held)
        ]
        self._tables = {name: self._write(name, held) for name, held in tiles.items()}
        self._found(federation)

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def roster(self) -> Path:
        return self.folder / "roster.json"

    def kit(self, name: str) -> Path:
        """The kit of a party, of ``coordinator`` or of `SUBMITTER`."""
        return self.folder / "kits" / name

    def engine_log(self, name: str) -> str:
        """What the engine has said in the process of a party or the coordinator."""
        path = self.kit(name) / "log.txt"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def start(self, name: str, *options: str) -> None:
        """Start the coordinator or a party, for the first time or again.

        Parameters
        ----------
        options
            More of the command line; what comes later counts.
        """
        self._started[name] = time.time()
        if name == COORDINATOR:
            self.run(name, "serve", str(self.kit(name)), *options)
        else:
            self.run(name, "join", str(self.kit(name)), *self._own(name), *options)

    def start_all(self, seconds: float = 60.0) -> None:
        """Start the coordinator and all parties, and wait until they have found each other."""
        for name in (COORDINATOR, *self.parties):
            self.start(name)
        self.wait_connected(seconds=seconds)

    def wait_connected(self, names: Iterable[str] | None = None, seconds: float = 60.0) -> None:
        """Wait until the coordinator has let parties in since they, or it, were started last."""
        wanted = self.parties if names is None else tuple(names)
        self.wait_until(
            lambda: [name for name in wanted if not self._let_in(name)],
            seconds,
            needed=[COORDINATOR],
        )

    def submit(self, config: Path, out: Path, *options: str, name: str = "submit") -> None:
        """Start ``weft submit`` in the background, with the first party's keys to the model."""
        given = ["--out", str(out), "--keys", str(self.keys), "--party", self.parties[0]]
        self.run(name, "submit", str(self.kit(SUBMITTER)), str(config), *given, *options)

    def _let_in(self, name: str) -> bool:
        pulse = read_pulse(self.kit(COORDINATOR) / "weft")
        if pulse is None or pulse.began < self._started[COORDINATOR]:
            return False
        site = pulse.sites.get(name)
        return site is not None and site.there and site.seen >= self._started.get(name, 0.0)

    def _own(self, name: str) -> list[str]:
        """What a party is told when it joins."""
        given = ["--keys", str(self.keys), "--roster", str(self.roster), "--id", ID]
        for path in self._tables[name]:
            given += ["--data", str(path)]
        return [*given, "--label", LABEL] if name in self._labelled else given

    def _write(self, name: str, held: Sequence[Tile]) -> list[Path]:
        paths = [self.folder / "tables" / f"{name}-{n}.parquet" for n in range(1, len(held) + 1)]
        for tile, path in zip(held, paths, strict=True):
            write_tile(tile, path, id_column=ID, label_column=LABEL)
        return paths

    def _found(self, federation: str) -> None:
        """Keys, a roster that all have signed, kits."""
        new_keys(self.keys, self.parties)
        drafted = draft_roster(
            federation,
            [card_of(self.keys, name) for name in self.parties],
            self.terms,
            limits=self.limits,
            labels=self._labelled,
            matching=self.parties[:2],
        )
        for name in self.parties:
            drafted = drafted.signed_by(name, load_keys(self.keys, name).identity)
        write_roster(self.roster, drafted, new=True)
        plan = FederationPlan(
            federation,
            self.host,
            self.port,
            tuple(Recipient("site", name, "trial") for name in self.parties),
            (Recipient("submitter", SUBMITTER, "trial"),),
        )
        provision(plan, self.folder / "kits")


def free_port() -> int:
    """A free port of the loopback.

    It is below those that systems give to connections: a client that tries a port of theirs while
    nobody listens there can end up connected to itself.
    """
    while True:
        port = 15_000 + randbelow(15_000)
        with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
