"""What the network costs: round trips of four parties, and iterations deployed.

Two parts, each of which ``--only`` selects by its name:

``round trips``  one message to each of four parties and back, in four ways that take turns, from
                 the coordinator's job process to the parties' processes:
                 *Weft*, its channel with all that a run has (journals on both sides, written
                 through to the disk, envelopes, checks, letters sealed from end to end), to a
                 party that echoes;
                 *aux*, the engine's auxiliary call, ``send_aux_request``;
                 *cell*, a bare request between the engine's cells;
                 *gRPC*, a bare call to a server in the party's process. It goes straight there,
                 which no deployed message does: sites open no port, all comes by the server.
``iterations``   seconds of an iteration of HyFDCA and of cutting planes, without encryption and
                 under ``pad``: ``weft submit`` to ``weft serve`` and four ``weft join``, against
                 the same run, with the same gap in the end, in one process. There the parties work
                 one after the other; deployed they work at the same time, as far as this machine
                 has processors for them.

Everything runs on this machine, with mutual TLS over its loopback; parties share its processors and
its disk. Times of a network between machines come on top. Needs ``nvflare``, and MNIST: set
WEFT_DATA.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pandas as pd
from nvflare.apis.event_type import EventType
from nvflare.apis.signal import Signal
from nvflare.fuel.flare_api.flare_api import new_secure_session

from harness import Report
from harness.echoes import EchoParty, RoundTrips
from harness.played_engine import PlayedEngine, PlayedTransport
from harness.splits import DataSets
from weft.cli.submit import INCOMPLETE
from weft.config.read_config import read_config
from weft.data import SPLITS, Split
from weft.federation.local_federation import Federation
from weft.guards.privacy_terms import OPEN
from weft.network.certificate_signatures import Credential
from weft.network.coordinator_run import coordinate_run
from weft.network.kits.kit_folder import Kit
from weft.network.open_site import open_site
from weft.network.run_progress import Progress
from weft.network.run_results import HISTORY, RESULTS
from weft.network.saved_join_settings import JoinSettings
from weft.network.secure_session import SecureSite, SecureTransport
from weft.network.task_from_config import task_of
from weft.solvers.run_settings import Settings
from weft_examples.local_federation_processes import ID, LABEL, SUBMITTER, FederationProcesses

#: Bytes of a message, and how many round trips are measured in each way.
SIZES = {"1 kB": (1_000, 100), "100 kB": (100_000, 100), "5 MB": (5_000_000, 15)}
#: Weft's round trip over the engine's auxiliary call, at most.
BAR = 1.3
#: Images of MNIST, and iterations of each algorithm.
IMAGES, ITERATIONS = 4000, {"hyfdca": 60, "cutting-planes": 40}
#: The same of a smoke run.
SMOKE_SIZES, SMOKE_ITERATIONS = {"1 kB": (1_000, 2)}, 2
CIPHERS = ("plain", "pad")
LAM = 1e-2
#: Out of reach: every run does all its iterations.
GAP = 1e-12
_ECHOES = "harness.echoes"


@contextmanager
def trial(split: Split) -> Iterator[FederationProcesses]:
    """Four parties that have agreed to everything, in a folder that goes with them."""
    with (
        tempfile.TemporaryDirectory(prefix="weft-bench-") as folder,
        FederationProcesses(Path(folder) / "trial", split.parties, terms=OPEN) as made,
    ):
        yield made


def quarters(data: DataSets, images: int) -> Split:
    """The digit 3 against the rest: halves of the samples × halves of the features."""
    table = data.threes()
    return SPLITS["grid"](table.rows(np.arange(min(images, table.n))), k=2, q=2)


# ── round trips ───────────────────────────────────────────────────────────────────────────────


def round_trips(report: Report, data: DataSets) -> None:
    if not report.wants("round trips"):
        return
    sizes = SMOKE_SIZES if report.smoke else SIZES
    with trial(quarters(data, 100)) as made:
        let_echo(made)
        given = {
            "folder": str(made.folder),
            "parties": {name: str(echo_folder(made, name)) for name in made.parties},
            "sizes": list(sizes.values()),
        }
        if report.smoke:
            play(made, given)
        else:
            let_processes_find_echoes()
            made.start_all()
            submit_measuring(made, given)
        found = json.loads(figures_of(made).read_text())
    for label, (size, _) in sizes.items():
        times = {way: [1e3 * t for t in seconds] for way, seconds in found[str(size)].items()}
        middle = {way: median(each) for way, each in times.items()}
        worst = {way: quantiles(each, n=20)[-1] for way, each in times.items()}
        for way, bar in (("aux", BAR), ("cell", None), ("grpc", None)):
            name = f"round trips, {label}, beside {way}"
            report.add(f"{name}: median", middle["weft"], "ms", anchor=middle[way])
            report.add(f"{name}: p95", worst["weft"], "ms", anchor=worst[way])
            report.add(f"{name}: median over", middle["weft"] / middle[way], "×", bar=bar)


def let_echo(made: FederationProcesses) -> None:
    """Name the benchmark's classes in its own kits."""
    coordinator = made.kit("coordinator")
    for name in ("coordinator", *made.parties):
        path = made.kit(name) / "local" / "resources.json"
        resources = json.loads(path.read_text())
        resources["class_allow_list"].append(_ECHOES)
        if name != "coordinator":
            folder = echo_folder(made, name)
            folder.mkdir()
            resources["components"] = [
                component(
                    "weft_party",
                    "EchoParty",
                    {
                        "kit": str(made.kit(name)),
                        "folder": str(folder),
                        "coordinator": str(coordinator),
                    },
                )
            ]
        path.write_text(json.dumps(resources))


def echo_folder(made: FederationProcesses, name: str) -> Path:
    return made.folder / f"echo-{name}"


def component(name: str, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "path": f"{_ECHOES}.{kind}", "args": arguments}


def let_processes_find_echoes() -> None:
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def figures_of(made: FederationProcesses) -> Path:
    """The file that the measuring job writes."""
    return made.folder / "seconds.json"


def play(made: FederationProcesses, arguments: dict[str, Any]) -> None:
    """Measure in this process, with the components that the kits name."""
    engines = {name: PlayedEngine(made.kit(name)) for name in made.parties}
    with ExitStack() as open_parties:
        for name, engine in engines.items():
            resources = json.loads((made.kit(name) / "local" / "resources.json").read_text())
            (named,) = resources["components"]
            party = open_parties.enter_context(closing(EchoParty(**named["args"])))
            party.handle_event(EventType.SYSTEM_BOOTSTRAP, engine.context)
        coordinator = PlayedEngine(made.kit("coordinator"), engines)
        RoundTrips(**arguments).control_flow(Signal(), coordinator.context)


def submit_measuring(
    made: FederationProcesses, arguments: dict[str, Any], patience: float = 120.0
) -> None:
    """Submit the job that measures, as any run is submitted, and wait for its figures."""
    job = made.folder / "round-trips"
    config = job / "app" / "config"
    config.mkdir(parents=True)
    told = {
        # The engine's check insists on a client, which need not exist.
        job / "meta.json": {
            "name": "round-trips",
            "resource_spec": {},
            "deploy_map": {"app": ["server", "nobody"]},
        },
        config / "config_fed_server.json": {
            "format_version": 2,
            "workflows": [component("round_trips", "RoundTrips", arguments)],
            "components": [],
        },
        config / "config_fed_client.json": {
            "format_version": 2,
            "executors": [],
            "components": [],
        },
    }
    for path, content in told.items():
        path.write_text(json.dumps(content))
    out = figures_of(made)
    session = new_secure_session(SUBMITTER, str(made.kit(SUBMITTER)))
    try:
        number = session.submit_job(str(job))
        until = time.monotonic() + patience
        while not out.exists():
            status = str(session.get_job_meta(number)["status"])
            if status.startswith("FINISHED") and not out.exists():
                raise RuntimeError(
                    f"the measuring job ended: {status}; {made.engine_log('coordinator')}"
                )
            if time.monotonic() > until:
                raise RuntimeError(f"no figures within {patience:g} s")
            time.sleep(2.0)
    finally:
        session.close()


# ── iterations ────────────────────────────────────────────────────────────────────────────────


#: Seconds of an iteration, from the end of the first, which compiles, on; and the last gap.
Course = tuple[float, float | None]


def iterations(report: Report, data: DataSets) -> None:
    if not report.wants("iterations"):
        return
    split = quarters(data, IMAGES)
    with trial(split) as made, ExitStack() as sites:
        deploy = deployed
        if report.smoke:
            deploy = partial(deployed_here, sites.enter_context(opened_sites(made)))
        else:
            made.start_all()
        pairs = [(s, c) for s in ITERATIONS for c in CIPHERS]
        if report.smoke:
            # Every solver and every cipher once.
            pairs = [*zip(ITERATIONS, CIPHERS, strict=True)]
        for solver, cipher in pairs:
            name = f"iterations, {solver}, {cipher}"
            count = SMOKE_ITERATIONS if report.smoke else ITERATIONS[solver]
            alone, gap = in_one_process(split, solver, cipher, count)
            over, same = deploy(made, solver, cipher, count)
            again, _ = in_one_process(split, solver, cipher, count)
            if gap != same:
                raise RuntimeError(f"{name}: gap {same} deployed, {gap} in one process")
            one = (alone + again) / 2
            report.add(f"{name}: deployed", over * 1e3, "ms", anchor=one * 1e3)
            report.add(f"{name}: over one process", over / one, "×", anchor=1)


def in_one_process(split: Split, solver: str, cipher: str, count: int) -> Course:
    settings = Settings(
        solver=solver,
        loss="hinge",
        lam=LAM,
        gap=GAP,
        iterations=count,
        cipher=cipher,
    )
    trained = Federation(split.parties).train(settings)
    history = trained.result.history
    return course([record.wall_seconds for record in history]), history[-1].gap


def write_config(
    made: FederationProcesses, name: str, solver: str, cipher: str, count: int
) -> Path:
    config = made.folder / f"{name}.toml"
    parties = "".join(f'[[party]]\nname = "{party}"\n' for party in made.parties)
    config.write_text(
        f"""
        [data]
        intercept = false
        [model]
        loss = "hinge"
        lambda = {LAM}
        [solver]
        name = "{solver}"
        cipher = "{cipher}"
        gap = {GAP}
        iterations = {count}
        when_missing = "stop"
        [privacy]
        matching = "hmac"
        {parties}
        """
    )
    return config


def deployed(made: FederationProcesses, solver: str, cipher: str, count: int) -> Course:
    """The same, over the network."""
    name = f"{solver}-{cipher}"
    config, out = write_config(made, name, solver, cipher, count), made.folder / name
    made.submit(config, out, name=name)
    # It ends at its iterations, before the gap: over, and short of what was asked for.
    if made.wait(name, 90.0) not in (0, INCOMPLETE):
        raise RuntimeError(made.log(name))
    return course_of(pd.read_csv(out / "history.csv"))


@contextmanager
def opened_sites(made: FederationProcesses) -> Iterator[dict[str, SecureSite]]:
    """The sites of all parties, in this process."""
    sites: dict[str, SecureSite] = {}
    for name in made.parties:
        kit = Kit.inspect(made.kit(name))
        settings = JoinSettings(
            party=name,
            data=[str(path) for path in (made.folder / "tables").glob(f"{name}-*.parquet")],
            id=ID,
            label=LABEL,
            keys=str(made.keys),
            roster=str(made.roster),
        )
        site = open_site(settings, kit)
        sites[name] = SecureSite(site, Credential.of(kit), kit.name, kit.host)
    try:
        yield sites
    finally:
        for each in sites.values():
            each.close()


def deployed_here(
    sites: dict[str, SecureSite], made: FederationProcesses, solver: str, cipher: str, count: int
) -> Course:
    """The same with all sites and the coordinator in this process, and no engine between them."""
    name = f"{solver}-{cipher}"
    config = read_config(write_config(made, name, solver, cipher, count), deployed=True)
    credential = Credential.of(Kit.inspect(made.kit("coordinator")))
    folder = made.folder / name
    coordinate_run(
        lambda parties: SecureTransport(PlayedTransport(sites), credential),
        folder,
        task_of(config, made.parties),
        Progress(name),
    )
    return course_of(pd.read_parquet(folder / RESULTS / HISTORY))


def course_of(history: pd.DataFrame) -> Course:
    return course(history["wall_seconds"].tolist()), float(history["gap"].iloc[-1])


def course(ends: list[float]) -> float:
    """By the two ends: a submitter is told its clock with two digits, too few for each."""
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Four parties over a network", "held against", arguments)
    data = DataSets(report.smoke)
    round_trips(report, data)
    iterations(report, data)
    report.close()


if __name__ == "__main__":
    main()
