"""A federation that was founded by the commands, each member in a folder. Not a test itself.

Letters go through memory, but between the very kits: both ends show their certificates.
"""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
from toys import Crashed

from weft.federation.model import load_model
from weft.federation.preprocessing_settings import Preprocessing
from weft.network.certificate_signatures import Credential
from weft.network.coordinator_run import coordinate_run
from weft.network.kits.kit_folder import Kit
from weft.network.open_site import open_site
from weft.network.run_progress import Progress
from weft.network.saved_join_settings import JoinSettings, read_settings, write_settings
from weft.network.secure_session import SecureSite, SecureTransport
from weft.network.submitted_task import LinearTask
from weft.protocol import Failure
from weft.solvers.run_settings import Settings

ROWS, ANNA = 14, "anna@north.example"
TOML = 'name = "clinics"\nhost = "{host}"\nport = {port}\n'
ENTRY = '[[{kind}]]\nname = "{name}"\norganisation = "clinic"\n'


class Wire:
    """Carries bytes to sites in this process; dies with the coordinator at a letter."""

    def __init__(self, sites, dies_at=None):
        self.sites, self.parties = sites, tuple(sites)
        self.left, self.unanswered = dies_at, ()

    def send(self, envelopes, timeout):
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise Crashed
        away = Failure("failed", "is not connected")
        return {
            party: self.sites[party].answer(envelope) if party in self.sites else away
            for party, envelope in envelopes.items()
        }


class Founded:
    """Members with keys, tables and kits below a folder, as docs/federation-life.md has them."""

    def __init__(self, folder, weft, port=18002):
        self.folder, self._weft, self.port = folder, weft, port
        self.members = []
        self.cells = np.random.default_rng(7).normal(size=(ROWS, 8))
        (folder / "organiser" / "requests").mkdir(parents=True, exist_ok=True)

    def weft(self, *arguments):
        code, out, err = self._weft(*arguments)
        assert code == 0, err
        return out

    # ── what each member does ─────────────────────────────────────────────────────────────

    def keys(self, name):
        return self.folder / name / "keys"

    def kit(self, name):
        return self.folder / name / "kit"

    def card(self, name, keys="keys"):
        """A member makes keys, and its card."""
        (self.folder / name).mkdir(exist_ok=True)
        path = self.folder / name / f"{keys}.json"
        self.weft("keys", "new", self.folder / name / keys, "--party", name)
        self.weft("federation", "join", path, "--keys", self.folder / name / keys, "--party", name)
        return path

    def sign(self, roster, names, keys=None):
        for name in names:
            folder = (keys or {}).get(name, self.keys(name))
            self.weft("federation", "sign", roster, "--keys", folder, "--party", name, "--yes")
        self.weft("federation", "verify", roster)

    def hand_out_secret(self, roster, names, keys=None):
        """The first member makes a run secret; what is public travels to the others."""
        where = {name: (keys or {}).get(name, self.keys(name)) for name in names}
        first, *others = names
        self.weft("keys", "new", where[first], "--renew-run", "--roster", roster)
        for name in others:
            shutil.copy(where[first] / "public.json", where[name])
            for old in (where[name] / name).glob("run-*.box"):
                old.unlink()
            for box in (where[first] / name).glob("run-*.box"):
                shutil.copy(box, where[name] / name)

    def request(self, name, number=1):
        """Where a member's TLS key lies; its request is at the organiser's."""
        folder = self.folder / name / f"request-{number}"
        folder.parent.mkdir(exist_ok=True)
        self.weft("federation", "request", name, "--out", folder)
        requests = self.folder / "organiser" / f"requests-{name}-{number}"
        requests.mkdir()
        for path in (requests, self.folder / "organiser" / "requests"):
            shutil.copy(folder / f"{name}.csr", path)
        return folder, requests

    def plan(self, sites, host="localhost"):
        told = [ENTRY.format(kind="site", name=name) for name in sites]
        told.append(ENTRY.format(kind="submitter", name=ANNA))
        path = self.folder / "organiser" / "federation.toml"
        path.write_text(TOML.format(host=host, port=self.port) + "".join(told))
        return path

    @property
    def kits(self):
        return self.folder / "organiser" / "kits"

    def table(self, name, place):
        """Two columns of all samples, and their labels."""
        frame = pd.DataFrame(
            self.cells[:, 2 * place : 2 * place + 2], columns=[f"{name}1", f"{name}2"]
        )
        frame.insert(0, "id", [f"n{row}" for row in range(ROWS)])
        frame["y"] = (self.cells[:, 0] + self.cells[:, 3] > 0).astype(int)
        path = self.folder / name / "table.csv"
        frame.to_csv(path, index=False)
        return path

    def join(self, name, roster, keys=None):
        """What ``weft join`` keeps in the kit."""
        settings = JoinSettings(
            party=name,
            data=[str(self.folder / name / "table.csv")],
            id="id",
            label="y",
            keys=str(keys or self.keys(name)),
            roster=str(roster),
        )
        write_settings(Kit.open(self.kit(name)), settings)

    # ── all of it ─────────────────────────────────────────────────────────────────────────

    def found(self, *names):
        self.members = list(names)
        cards = [self.card(name) for name in names]
        roster = self.folder / "roster-1.json"
        terms = ["--allow-pairs", "--allow-exposure", "--min-batch", "1", "--min-contributors", "2"]
        matching = ["--matching", names[0], "--matching", names[1]]
        told = ["--name", "clinics", *matching, *terms]
        self.weft("federation", "draft", roster, *cards, *told)
        self.sign(roster, names)
        self.hand_out_secret(roster, names)
        requests = {name: self.request(name)[0] for name in (*names, "coordinator")}
        organiser = self.folder / "organiser"
        self.weft(
            "federation", "new", self.plan(names), "--out", self.kits,
            "--requests", organiser / "requests",
        )  # fmt: skip
        for place, (name, request) in enumerate(requests.items()):
            self.install(name, request)
            if name in names:
                self.table(name, place)
                self.join(name, roster)
        return roster

    def copied(self, folder, weft):
        """The same federation in another folder, where nothing has happened yet."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        other = Founded(folder, weft)
        other.members = self.members
        for name in self.members:
            other.join(name, folder / "roster-1.json")
        return other

    def install(self, name, request):
        self.weft(
            "federation", "install", self.kits / f"{name}.zip", "--request", request,
            "--out", self.kit(name),
        )  # fmt: skip

    def task(self, names):
        settings = Settings(lam=0.1, loss="logistic", gap=0.05, solver="lbfgs", patience=1.0)
        return LinearTask(
            name="t",
            parties=tuple(names),
            settings=settings,
            timeout=2.0,
            preprocessing=Preprocessing(scaling="standard", matching="oprf"),
        )

    def run(self, run, names=None, *, dies_at=None, coordinator=None):
        """Begin or go on with a run; the model that the first party got, and its columns."""
        names = tuple(names or self.members)
        sites = {}
        for name in names:
            kit = Kit.open(self.kit(name), "site")
            kit.prepare()
            site = open_site(read_settings(kit), kit)
            sites[name] = SecureSite(site, Credential.of(kit), name, kit.host)
        kit = Kit.open(coordinator or self.kit("coordinator"), "coordinator")
        kit.prepare()
        wire = Wire(sites, dies_at)
        try:
            coordinate_run(
                lambda parties: SecureTransport(wire, Credential.of(kit)),
                kit.runs / run,
                self.task(names),
                Progress(run),
                ANNA,
            )
        finally:
            for site in sites.values():
                site.close()
        return load_model(self.kit(names[0]) / "weft" / "models" / run / "model.npz")

    def begin(self, run):
        """A run whose coordinator dies in the middle of training."""
        try:
            self.run(run, dies_at=25)
        except Crashed:
            assert (self.kit("coordinator") / "weft" / "runs" / run / "journal.weft").exists()
            return
        raise AssertionError("the run was over before the coordinator died")
