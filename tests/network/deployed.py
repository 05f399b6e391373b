"""A federation of processes that things happen to, and what is looked at meanwhile. Not a test."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np
from forked import ForkedProcess, ready

from weft.config.read_config import read_config
from weft.config.site_policy_file import read_policy
from weft.crypto.keys import load_all, new_keys
from weft.data import Tile, load
from weft.data.write_tile_file import write_tile
from weft.federation.local_federation import Federation
from weft.federation.model import load_model
from weft.guards import OPEN
from weft.network.exchange_outcomes_and_journal_records import ExchangeOutcome, read_record
from weft.network.kits.federation_plan import FederationPlan, Recipient
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.kits.provisioning import provision
from weft.network.record_and_replay_absences import Presence, ReplayedPresence
from weft.privacy.agreement import Consent, Limits, read_roster
from weft.protocol import unpack
from weft.storage.framed_records import CutOff, Damage, read_frames
from weft_examples.local_federation_processes import ID, SUBMITTER, FederationProcesses
from weft_neural.config import read_neural_config
from weft_neural.local_federation import NeuralFederation
from weft_neural.sample_sources import TableSource

#: Rows and columns of a real table that each party holds; the last party does not offer its last.
CUTS = {"north": ((0, 120), (0, 6)), "south": ((0, 120), (6, 12)), "west": ((100, 180), (0, 13))}
ROWS, COLUMNS = 180, 12
LAM, GAP = 0.05, 1e-4
#: What each site's owner insists on; OFFERED stands for the columns.
KINDS = ("linear", "predict", "check")
POLICIES = {
    "north": 'solvers = ["hyfdca", "hyfem", "sealed"]\n'
    'kinds = ["linear", "predict", "check"]\naskers = ["south"]',
    "south": 'ciphers = ["pad", "bfv"]\nkinds = ["linear", "predict", "check"]',
    "west": "columns = OFFERED\nmost_runs = 4\n"
    'kinds = ["linear", "predict", "check"]\naskers = ["south"]',
}
#: Rows of new samples that every party holds some columns of.
NEW_ROWS = (200, 220)
#: Columns by block, and who trains networks on them: one has the first only, one both. Loading
#: PyTorch takes every party seconds.
NEURAL = ("north", "west")
BLOCKS = {"first": (0, 6), "second": (6, 12)}
#: In runs whose names begin so, from that exchange on, south's letters are damaged.
HURT, DAMAGED_AT = "hurt", 70
HERE = Path(__file__).parent


def table():
    return load("breast_cancer")


def tiles():
    """What each party has in its file."""
    whole = table().to_tile()
    return {
        name: [whole.rows(np.arange(*rows)).columns(np.arange(*columns))]
        for name, (rows, columns) in CUTS.items()
    }


def new_tiles():
    """New samples, without labels, as each party has them in a file."""
    whole = table().to_tile().rows(np.arange(*NEW_ROWS))
    found = {name: whole.columns(np.arange(*columns)) for name, (_, columns) in CUTS.items()}
    return {name: Tile.make(t.ids, t.features, t.block) for name, t in found.items()}


class Scene(FederationProcesses):
    """The trial, its policies and configs, and the coordinator's journal."""

    def __init__(self, folder):
        super().__init__(
            folder,
            tiles(),
            terms=msgspec.structs.replace(OPEN, matching="oprf"),
            limits=Limits(kinds=KINDS),
            federation="one",
        )
        for name, tile in new_tiles().items():
            write_tile(tile, self.new(name), id_column=ID)
        offered = msgspec.json.encode(table().features[:COLUMNS].tolist()).decode()
        for name, policy in POLICIES.items():
            self.policy(name).write_text(policy.replace("OFFERED", offered))
        self.damages = folder / "damages"

    def new(self, name):
        return self.folder / "tables" / f"{name}-new.parquet"

    def policy(self, name):
        return self.folder / f"{name}.toml"

    def start(self, name, *options):
        """With its policy; south behind somebody who damages letters."""
        if name == COORDINATOR:
            return super().start(name, *options)
        script = (str(HERE / "damaging.py"), str(self.damages), HURT, str(DAMAGED_AT))
        with self.running(*(script if name == "south" else ("-m", "weft"))):
            told = ("--policy", str(self.policy(name)), "--new", str(self.new(name)))
            return super().start(name, *told, *options)

    def run(self, name, *arguments):
        """Fork it; that the command line starts as well is in ``test_plugins.py``."""
        assert not self.is_running(name)
        self._processes[name] = ForkedProcess(self.program, arguments, self._log(name))
        return None

    @contextmanager
    def running(self, *program):
        """Start something else than Weft itself."""
        before, self.program = self.program, program
        try:
            yield
        finally:
            self.program = before

    def join(self, name, kit, party, *options):
        """Somebody who would be that party, with its data."""
        self.run(name, "join", str(kit), *self._own(party), *options)

    def working(self, name):
        """The process in which a site works: the second that was started for the connected one."""
        _, process = self.children(name)
        return process

    # ── runs ──────────────────────────────────────────────────────────────────────────────

    def config(self, config, timeout=20.0, **solver):
        """A config of that name; ``solver`` changes its section."""
        path = self.folder / f"{config}.toml"
        told = {"name": "hyfdca", "gap": GAP, "cipher": "pad", **solver}
        lines = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in told.items()]
        parties = "\n".join(f'[[party]]\nname = "{party}"' for party in self.parties)
        path.write_text(
            f'name = "{config}"\n[data]\nscaling = "standard"\n[model]\nloss = "logistic"\n'
            f"lambda = {LAM}\n[solver]\n" + "\n".join(lines) + f"\n[network]\ntimeout = {timeout}\n"
            f"{parties}\n"
        )
        return path

    def neural_config(self, config):
        """One of a small neural run."""
        path = self.folder / f"{config}.toml"
        lines = [
            f'name = "{config}"', "[neural]", 'coordinator_sees = "weights"', "hidden = [8]",
            "rounds = 3", "steps = 8", "batch = 16", "test_share = 0.2", "[network]",
            "timeout = 20.0",
        ]  # fmt: skip
        for name, (start, stop) in BLOCKS.items():
            columns = msgspec.json.encode(table().features[start:stop].tolist()).decode()
            lines += [f"[neural.blocks.{name}]", f"columns = {columns}"]
        lines += [f'[[party]]\nname = "{party}"' for party in NEURAL]
        path.write_text("\n".join(lines) + "\n")
        return path

    def out(self, name):
        return self.folder / "results" / name

    def start_run(self, config, *options, **changes):
        self.submit(self.config(config, **changes), self.out(config), *options, name=config)

    def run_name(self, name):
        """The full name of a run by that of its config; it must have begun."""
        (found,) = (self.kit(COORDINATOR) / "weft" / "runs").glob(f"{name}-*")
        return found.name

    def journal(self, name):
        return self.kit(COORDINATOR) / "weft" / "runs" / self.run_name(name) / "journal.weft"

    def outcomes(self, name):
        """What the coordinator has written down so far, exchange by exchange."""
        try:
            return read_outcomes(self.journal(name))
        except (ValueError, FileNotFoundError):
            return []

    def keep_journal(self, name):
        """A second name of the coordinator's journal, under which it is there after the run."""
        kept = self.folder / f"{name}.weft"

        def link():
            with suppress(ValueError, FileNotFoundError):
                os.link(self.journal(name), kept)
            return kept.exists()

        self.wait_for(f"the journal of {name}", link, needed=[name])
        return kept

    def wait_for(self, what, condition, seconds=240.0, needed=()):
        """Look again and again whether something has come true, and return it."""
        until = time.monotonic() + seconds
        while not (found := condition()):
            for name in needed:
                assert self.is_running(name), f"{name} ended before {what}: {self.log(name)}"
            assert time.monotonic() < until, f"waited {seconds:g} s for {what}: {self.last_words()}"
            time.sleep(0.1)
        return found

    def wait_exchanges(self, name, number):
        """Until the run has come so far, in the middle of its training."""
        return self.wait_for(
            f"exchange {number} of {name}",
            lambda: len(found := self.outcomes(name)) >= number and found,
            needed=[name],
        )

    def wait_journal(self, name, number):
        """The coordinator's journal when it has so many exchanges, as bytes; and these.

        Both from one look, since the run goes on and its journal begins anew now and then.
        """
        seen = self.folder / f"{name}-seen.weft"

        def look():
            with suppress(ValueError, FileNotFoundError):
                seen.write_bytes(self.journal(name).read_bytes())
                found = read_outcomes(seen)
                return len(found) >= number and (seen.read_bytes(), found)

        return self.wait_for(f"exchange {number} of {name}", look, needed=[name])

    def wait_back(self, name, party, since):
        """Until a party has answered in an exchange after that number; all exchanges."""

        def seen():
            found = self.outcomes(name)
            return any(o.number > since and party in o.got for o in found) and found

        return self.wait_for(f"{party} to be back", seen, needed=[name])

    def last_words(self):
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"{log.stem}: " + self.log(log.stem)[-600:] for log in logs)

    # ── judges ────────────────────────────────────────────────────────────────────────────

    def in_one_process(self, name):
        """The run once more, by parties in this process, with the same ones away."""
        config = read_config(self.folder / f"{name}.toml", deployed=True)
        federation = Federation(
            self._offered(),
            config.preprocessing(),
            keys=load_all(self.keys, self.parties),
            consents=self._consents(config),
        )
        return federation.train(config.settings, through=self._attended(name))

    def networks_in_one_process(self, name):
        """The same for a neural run."""
        config = read_neural_config(self.folder / f"{name}.toml", deployed=True)
        held, consents = self._offered(), self._consents(config)
        federation = NeuralFederation(
            {party: TableSource(party, held[party]) for party in NEURAL},
            device="cpu",
            keys=load_all(self.keys, NEURAL),
            consents={party: consents[party] for party in NEURAL},
        )
        return federation.train(config.settings, through=self._attended(name))

    def _offered(self):
        """Tiles without the column that its owner does not offer."""
        held = tiles()
        held["west"] = [tile.columns(np.arange(COLUMNS)) for tile in held["west"]]
        return held

    def _consents(self, config):
        signed = read_roster(self.roster)
        return {
            party: Consent(
                party, config.terms, roster=signed, policy=read_policy(self.policy(party))
            )
            for party in self.parties
        }

    def _attended(self, name):
        presence = Presence.load(self.out(name) / "presence.json")
        return lambda channel: ReplayedPresence(channel, presence)

    def model(self, name):
        return load_model(self.out(name) / "model.npz")

    def summary(self, name):
        return msgspec.json.decode((self.out(name) / "summary.json").read_bytes())


def read_outcomes(path):
    """All exchanges that a coordinator's journal has."""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.readline()
        records = []
        with suppress(CutOff, Damage):
            records += (content for content, _ in read_frames(file, size))
    read = [read_record(record) for record in records]
    return [record for record in read if isinstance(record, ExchangeOutcome)]


@contextmanager
def open_scene(folder):
    """A scene whose coordinator and first two parties are being started."""
    scene = Scene(folder)
    with ready(**scene.environment), scene:
        for name in (COORDINATOR, "north", "south"):
            scene.start(name)
        yield scene


def other_run_secret(scene):
    """The same parties' keys, but with another run secret."""
    folder = scene.folder / "other-keys"
    shutil.copytree(scene.keys, folder)
    new_keys(folder, scene.parties, renew_run=True)
    return folder


def foreign_kit(scene, name):
    """A kit for the same names, host and port, by another authority."""
    plan = FederationPlan(
        "one",
        "localhost",
        scene.port,
        tuple(Recipient("site", party, "trial") for party in scene.parties),
        (Recipient("submitter", SUBMITTER, "trial"),),
    )
    folder = scene.folder / "foreign"
    provision(plan, folder)
    return folder / name


def borrowed_kit(scene, name, owner):
    """The kit of one party with the certificate and the key of another."""
    folder = scene.folder / "borrowed" / str(len(list(scene.folder.glob("borrowed/*"))))
    shutil.copytree(scene.kit(name), folder, ignore=shutil.ignore_patterns("weft", "*.txt"))
    for part in ("client.crt", "client.key"):
        shutil.copy(scene.kit(owner) / "startup" / part, folder / "startup")
    return folder


def hidden_bytes(outcomes):
    """The ends of all ciphertexts that parties sent up, from a journal."""
    replies = [
        unpack(packed)
        for outcome in outcomes
        for got in outcome.got.values()
        for packed in got.replies
    ]
    values = [value for reply in replies for value in reply.values()]
    return {value[-24:] for value in values if isinstance(value, bytes) and len(value) >= 80}


def all_bytes(folder):
    """The content of all files of a folder, also of those within archives."""
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            yield path, content
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(BytesIO(content)) as archive:
                    for name in archive.namelist():
                        yield path / name, archive.read(name)
