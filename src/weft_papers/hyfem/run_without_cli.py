"""``python -m weft_papers.hyfem.run_without_cli``: runs of one experiment, one JSON file each.

For machines that train but lack the command line's packages. ``weft reproduce hyfem --out`` takes
up what lies in the folder, and draws it.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, WeftError
from weft.report.number_format import time_text
from weft_neural.history import Round
from weft_papers.hyfem.run_experiments import check_folder, done_before
from weft_papers.hyfem.setups import KINDS, Plan, Setup, experiments, setup


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for; returns the exit code."""
    told = _parser().parse_args(arguments)
    try:
        _run(told)
    except WeftError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _run(told: argparse.Namespace) -> None:
    from weft_papers.hyfem.train_run import train_run

    chosen = setup(
        told.experiment,
        changes=_changes(told),
        samples=told.samples,
        test_samples=told.test_samples,
    )
    check_folder(told.out)
    scene = chosen.load(told.data_dir)
    for plan in _plans(chosen, told, scene.parties, scene.common_blocks()):
        if done_before(told.out, chosen, plan) is not None:
            print(f"{plan.experiment} {plan.run}: done before", file=sys.stderr)
            continue
        run = train_run(chosen, plan, scene, told.out, device=told.device, progress=tell)
        print(
            f"{plan.experiment} {plan.run}: {run.rounds} rounds in {run.seconds:.0f} s",
            file=sys.stderr,
        )


def _plans(
    chosen: Setup, told: argparse.Namespace, parties: tuple[str, ...], common: tuple[str, ...]
) -> list[Plan]:
    plans = list(chosen.plans(parties, common, told.only_run or KINDS))
    if told.party:
        for party in told.party:
            if party not in parties:
                raise ConfigError(
                    f"there is no party '{party}'; the parties are {', '.join(parties)}"
                )
        plans = [plan for plan in plans if plan.party is None or plan.party in told.party]
    if told.variant:
        kept = [p for p in plans if p.kind != "hyfem" or told.variant in (p.run, p.label)]
        if not any(plan.kind == "hyfem" for plan in kept):
            known = ", ".join(chosen.experiment.variants)
            raise ConfigError(f"there is no variant '{told.variant}'; choose one of {known}")
        plans = kept
    return plans


def _changes(told: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if told.rounds is not None:
        changes["rounds"] = told.rounds
    if told.seed is not None:
        changes["seed"] = told.seed
    for pair in told.set:
        try:
            changes |= tomllib.loads(pair)
        except tomllib.TOMLDecodeError:
            raise ConfigError(
                f"--set {pair} cannot be read; write it as in a config, such as rate=0.1"
            ) from None
    return changes


def tell(plan: Plan, found: Round, left: float) -> None:
    """One line a measured round, on stderr."""
    if found.local_accuracy is not None:
        print(f"{plan.experiment} {plan.run}: {progress_text(found, left)}", file=sys.stderr)


def progress_text(found: Round, left: float) -> str:
    """Where a run stands."""
    known = [f"round {found.turn}"]
    if found.loss is not None:
        known.append(f"loss {found.loss:.3f}")
    if found.server_accuracy is not None:
        known.append(f"server {found.server_accuracy:.1%}")
    if found.local_accuracy is not None:
        known.append(f"local {found.local_accuracy:.1%}")
    return " · ".join([*known, f"{time_text(left)} left"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weft_papers.hyfem.run_without_cli", description=__doc__
    )
    add = parser.add_argument
    add("experiment", help=f"one of {', '.join(experiments())}")
    add("--data-dir", help="folder with the original files; default: WEFT_DATA")
    add("--out", type=Path, default=Path("results/hyfem"), help="folder for results")
    add("--only-run", nargs="+", choices=KINDS, help="only runs of these kinds")
    add("--party", nargs="+", help="of the runs alone, only those of these parties")
    add("--variant", help="of several runs of HyFEM, only this one")
    add("--rounds", type=int, help="fewer rounds, for a trial")
    add("--seed", type=int, help="of first weights and minibatches")
    add("--samples", type=int, help="at most so many training samples")
    add("--test-samples", type=int, help="at most so many test samples")
    add("--set", nargs="+", default=[], metavar="KEY=VALUE", help="change settings of [neural]")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    return parser


if __name__ == "__main__":
    sys.exit(main())
