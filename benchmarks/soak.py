"""Runs in a row for an hour, with faults: are results right, and does anything grow?

``weft serve``, four ``weft join`` and one ``weft submit`` after the other, as processes of this
machine. Every run is of a method drawn at random, among all that run over a network, and meets a
fault drawn at random, at a random time:

- a site is killed (``kill -9``), and started again within seconds;
- a site is frozen (``SIGSTOP``) for some seconds;
- the run's own process at the coordinator is killed;
- the coordinator is killed with all its processes, and started again: in the first third of the
  time only (if there are other faults), so that one process then lives long enough for its growth
  to be told;
- all connections are cut at once;
- or nothing.

Each model is held against that of one process in which the same parties were missing, to the last
bit (of training on shares: both certified, and close). A run may also end in one sentence, which is
counted; no run may hang. North and south are killed; east and west are only frozen and cut off.

After every run, and after each process has looked for garbage, it is looked at with those that it
has started: memory, threads, descriptors. What is told is the growth of the process of a name that
lived longest, after it has had as many runs as there are methods, per hundred runs, by the median
slope of all pairs of looks;
and the files that are new in the temporary folder. Files of past runs stay in the kits until
somebody deletes them, and are counted for the record.

``--minutes`` says for how long, ``--seed`` what is drawn, ``--only`` which faults there are. With
``--smoke`` two runs are played in this process, without an engine and without faults.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from harness import Number, Report
from harness.played_engine import PlayedTransport
from harness.process_watch import ProcessWatch, count_files
from harness.soak_cluster import CASES, CUTS, GAP, LAM, Case, SoakCluster
from weft.config.read_config import read_config
from weft.errors import ProtocolError
from weft.federation.local_federation import Trained
from weft.federation.model import Model, load_model
from weft.network.certificate_signatures import Credential
from weft.network.coordinator_run import coordinate_run
from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.nvflare_processes.no_memory_growth import COLLECTED_EVERY
from weft.network.open_site import open_site
from weft.network.run_progress import Progress
from weft.network.run_results import RESULTS
from weft.network.saved_join_settings import JoinSettings
from weft.network.secure_session import SecureSite, SecureTransport
from weft.network.task_from_config import task_of
from weft_examples.local_federation_processes import ID, LABEL

NUMBERS = {
    "minutes": Number(60, 0, "how long to go on"),
    "seed": Number(0, 0, "of what is drawn; 0: another one each time"),
}
#: Iterations of a run at most, and of a smoke run.
ITERATIONS, SMOKE_ITERATIONS = 30, 2
#: Seconds after which a run counts as one that hangs.
HANGS = 400.0
#: Exit codes of ``weft submit`` with a model: it is what was asked for, or not certified to it.
WITH_MODEL = (0, 3)
#: Growth in a hundred runs, at most: megabytes, threads, descriptors.
MOST = {"rss": 25.0, "threads": 2.0, "descriptors": 2.0}
UNITS = {"rss": "MB", "threads": "threads", "descriptors": "descriptors"}
COORDINATOR_KILLED = "coordinator killed"
FAULTS = (
    "nothing",
    "site killed",
    "site frozen",
    "run's process killed",
    "all cut off",
    COORDINATOR_KILLED,
)
KILLED, OTHERS = ("north", "south"), ("east", "west")


# ── faults ────────────────────────────────────────────────────────────────────────────────────


class Faults:
    """What happens to a run, drawn at random."""

    def __init__(self, made: SoakCluster, draw: random.Random, wanted: list[str]) -> None:
        self._made, self._draw, self._wanted = made, draw, wanted
        #: Seconds from the beginning of a run at the coordinator to its end.
        self._lasted = [5.0]

    def draw(self, coordinator: bool) -> str:
        """The name of a fault; of the coordinator too, or of others only."""
        spared = [kind for kind in self._wanted if coordinator or kind != COORDINATOR_KILLED]
        return self._draw.choice(spared or self._wanted)

    def strike(self, name: str, kind: str) -> str:
        """Let a fault happen at some time after a run has begun; what has happened.

        Most of a submission is the start of its own process, in which little could go wrong. A run
        may end before its fault.
        """
        while made_of(self._made, name) is None and self._made.is_running(name):
            time.sleep(0.1)
        since, at = time.monotonic(), self._draw.uniform(0, median(self._lasted))
        with suppress(ProtocolError):
            self._made.wait(name, at)
        if kind == "nothing" or not self._made.is_running(name):
            with suppress(ProtocolError):
                self._made.wait(name, HANGS)
            self._lasted.append(time.monotonic() - since)
            return "nothing"
        self._let_happen(kind)
        return kind

    def _let_happen(self, kind: str) -> None:
        made, draw = self._made, self._draw
        if kind == "site killed":
            name = draw.choice(KILLED)
            made.kill(name)
            time.sleep(draw.uniform(0, 4))
            made.start(name)
        elif kind == "site frozen":
            name = draw.choice(KILLED + OTHERS)
            made.kill(name, signal.SIGSTOP)
            time.sleep(draw.uniform(1, 8))
            made.kill(name, signal.SIGCONT)
        elif kind == "run's process killed":
            for child in made.children(COORDINATOR):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        elif kind == COORDINATOR_KILLED:
            made.kill(COORDINATOR)
            time.sleep(draw.uniform(0, 4))
            made.start(COORDINATOR)
        elif kind == "all cut off" and made.proxy is not None:
            made.proxy.cut()


def made_of(made: SoakCluster, name: str) -> Path | None:
    """The folder of a run at its coordinator; None before it begins there."""
    return next((made.kit(COORDINATOR) / "weft" / "runs").glob(f"{name}-*"), None)


# ── one run ───────────────────────────────────────────────────────────────────────────────────


def is_same(case: Case, model: Model, trained: Trained) -> bool:
    """Whether a model is that of one process."""
    if case.exact:
        return model.coef.tobytes() == trained.model.coef.tobytes()
    # Both lie within √(2 gap/λ) of the best weights, in the units of training.
    names = model.features
    apart = np.linalg.norm(model.trained_weights(names) - trained.model.trained_weights(names))
    return bool(apart <= 2 * np.sqrt(2 * GAP / LAM))


def how_it_ended(made: SoakCluster, name: str, case: Case) -> str:
    """``same``, ``WRONG``, ``HANGS``, or the sentence of a run that has no result."""
    try:
        code = made.wait(name, HANGS)
    except ProtocolError:
        made.kill(name)
        return "HANGS"
    if code not in WITH_MODEL:
        lines = made.log(name).strip().splitlines()
        return f"code {code}: {lines[-1] if lines else 'no word'}"
    model = load_model(made.out(name) / "model.npz")
    return "same" if is_same(case, model, made.in_one_process(name, case)) else "WRONG"


# ── the hour ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def own_temporary_folder(folder: Path) -> Iterator[Path]:
    """Where the processes put temporary files, and nobody else."""
    path = folder / "temporary"
    path.mkdir()
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(path)
    try:
        yield path
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


def soak(report: Report, folder: Path, minutes: float, seed: int) -> None:
    draw = random.Random(seed)
    print(f"seed {seed}", flush=True)
    watch, ends, hit = ProcessWatch(len(CASES)), Counter[str](), Counter[str]()
    with own_temporary_folder(folder) as temporary, SoakCluster(folder / "trial") as made:
        made.open_proxy()
        made.start_all(seconds=180.0)
        faults = Faults(made, draw, [fault for fault in FAULTS if report.wants(fault)])
        waiting: list[Case] = []
        began, number = time.monotonic(), 0
        files = count_files(made.folder / "kits")
        while (past := time.monotonic() - began) < 60 * minutes:
            number += 1
            # Every method once, in any order, then all of them again.
            waiting = waiting or draw.sample(CASES, len(CASES))
            case = waiting.pop()
            fault = faults.draw(coordinator=past < 20 * minutes)
            since = time.monotonic()
            name = f"r{number}"
            made.write_config(name, case, ITERATIONS)
            made.submit(made.folder / f"{name}.toml", made.out(name), name=name)
            fault = faults.strike(name, fault)
            end = how_it_ended(made, name, case)
            lasted = time.monotonic() - since
            ends[end if end in ("same", "WRONG", "HANGS") else "sentence"] += 1
            hit[fault] += 1
            settle(made)
            print(
                f"{past / 60:5.1f} min, run {number}, {case.solver}, {fault}: {end} "
                f"({lasted:.0f} s); MB/threads/descriptors {look_at_all(made, watch, number)}; "
                f"temporary files {count_files(temporary)}",
                flush=True,
            )
            made.clear(name)
        kept = (count_files(made.folder / "kits") - files) / max(number, 1)
        left = count_files(temporary)
    tell(report, watch, ends, hit)
    report.add("files kept in kits, per run", kept, "files")
    report.add("temporary files left", left, "files", bar=0)


def look_at_all(made: SoakCluster, watch: ProcessWatch, number: int) -> str:
    names = (COORDINATOR, *CUTS)
    found = [watch.look(number, name, psutil.Process(made.pid(name))) for name in names]
    return " ".join(f"{one.rss:.0f}/{one.threads}/{one.descriptors}" for one in found)


def settle(made: SoakCluster, patience: float = 60.0) -> None:
    """Wait until no run's process is left, and every process runs that should.

    And until each has looked for garbage: what a run left until then, some ten MB at the
    coordinator, would count as growth wherever later runs follow faster than earlier ones.
    """
    for name in (COORDINATOR, *made.parties):
        if not made.is_running(name):
            made.start(name)
    until = time.monotonic() + patience
    while made.children(COORDINATOR) and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(COLLECTED_EVERY + 1)


def tell(report: Report, watch: ProcessWatch, ends: Counter[str], hit: Counter[str]) -> None:
    report.add("runs", sum(ends.values()), "runs")
    for fault, count in sorted(hit.items()):
        report.add(f"runs with: {fault}", count, "runs")
    report.add("results of one process", ends["same"], "runs")
    report.add("other results", ends["WRONG"], "runs", bar=0)
    report.add("runs that hang", ends["HANGS"], "runs", bar=0)
    report.add("runs that ended in a sentence", ends["sentence"], "runs")
    for name in watch.names():
        looks = watch.longest(name)
        for figure, most in MOST.items():
            grown = watch.growth(name, figure)
            if grown is not None:
                title = f"{name}, growth in 100 runs ({len(looks)} watched)"
                first = float(getattr(looks[0], figure))
                report.add(title, grown, UNITS[figure], anchor=first, bar=most)


# ── smoke ─────────────────────────────────────────────────────────────────────────────────────


def play(report: Report, folder: Path) -> None:
    """Two runs with all sites in this process."""
    made = SoakCluster(folder / "trial")
    watch, ends = ProcessWatch(len(CASES)), Counter[str]()
    credential = Credential.of(Kit.inspect(made.kit(COORDINATOR)))
    sites = {name: opened(made, name) for name in made.parties}
    try:
        for number, case in enumerate(CASES[:2], 1):
            name = f"r{number}"
            config = read_config(made.write_config(name, case, SMOKE_ITERATIONS), deployed=True)
            taking_part = PlayedTransport({party: sites[party] for party in case.parties})
            coordinate_run(
                partial(carried_by, SecureTransport(taking_part, credential)),
                made.out(name),
                task_of(config, case.parties),
                Progress(name),
            )
            watch.look(number, "all", psutil.Process())
            kept = made.kit("north") / "weft" / "models" / name / "model.npz"
            (made.out(name) / "presence.json").write_bytes(
                (made.out(name) / RESULTS / "presence.json").read_bytes()
            )
            trained = made.in_one_process(name, case)
            ends["same" if is_same(case, load_model(kept), trained) else "WRONG"] += 1
    finally:
        for site in sites.values():
            site.close()
    if ends["WRONG"]:
        raise RuntimeError("a run in this process has another model than one without a network")
    tell(report, watch, ends, Counter())


def carried_by(transport: SecureTransport, parties: tuple[str, ...]) -> SecureTransport:
    return transport


def opened(made: SoakCluster, name: str) -> SecureSite:
    kit = Kit.inspect(made.kit(name))
    settings = JoinSettings(
        party=name,
        data=[str(path) for path in (made.folder / "tables").glob(f"{name}-*.parquet")],
        id=ID,
        label=LABEL,
        keys=str(made.keys),
        roster=str(made.roster),
    )
    return SecureSite(open_site(settings, kit), Credential.of(kit), kit.name, kit.host)


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Runs in a row, with faults", "at first", arguments, NUMBERS)
    with tempfile.TemporaryDirectory(prefix="weft-soak-") as folder:
        if report.smoke:
            play(report, Path(folder))
        else:
            seed = int(report.number("seed")) or random.SystemRandom().randrange(1, 10**6)
            soak(report, Path(folder), report.number("minutes"), seed)
    report.close()
    if report.missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
