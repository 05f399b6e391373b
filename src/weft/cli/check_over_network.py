"""``weft check --network``: what sites say of a study before it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.network.submitted_task import CheckTask


def check_over_network(config: Path, kit: Path, resume: str | None, *, json: bool) -> None:
    """Ask the sites, and print what they told."""
    from weft.network.nvflare_processes import require_engine

    require_engine()
    from weft.cli.submit_and_follow import followed_run
    from weft.config.read_config import read_config
    from weft.network.kits.kit_folder import Kit
    from weft.network.study_check_job import make_check, read_check
    from weft.network.task_from_config import parties_of

    opened = Kit.open(kit, "submitter")
    plan = read_config(config, deployed=True)

    def make_task(connected: Sequence[str], run: str) -> CheckTask:
        return make_check(plan, parties_of(plan, connected))

    with followed_run(opened, plan, make_task, resume=resume, quiet=json) as back:
        found = read_check(back.folder)
    show_check(found, f"weft submit {kit} {config}", json=json)


def show_check(found: dict[str, Any], command: str, *, json: bool) -> None:
    """Print what a check found; exit code 2 if somebody would refuse the run, or something is odd.

    ``command`` is what trains the study.
    """
    from weft.cli.terminal_output import say, say_json
    from weft.errors import ConfigError
    from weft.privacy.ledger.expected_exposure_text import item

    if json:
        say_json(found)
    else:
        classes = found["classes"]
        labels = "a response" if classes is None else f"{classes} classes"
        say(f"{found['name']}: {len(found['parties'])} parties, {labels}", "")
        _show_tables(found)
        remarks = [f"{party}: {said}" for party, notes in found["notes"].items() for said in notes]
        if found["left_out"]:
            remarks.append(
                "some samples are left out, because the same parties hold fewer than min_batch = "
                f"{found['min_batch']} of them"
            )
        remarks.append(found["reason"] or f"solver: {found['solver']}")
        remarks += [found["round_trips"]] if found["round_trips"] else []
        say("", *(line for remark in remarks for line in item(remark)), *found["outlook"], "")
    problems = [*found["doubts"], *(one["sentence"] for one in found["refusals"])]
    if problems:
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        if not json:
            say(*(line for problem in problems[1:] for line in item(problem)))
        raise ConfigError(f"this run would be refused: {problems[0]}{more}")
    if not json:
        say(f"Ready: {command}")


def _show_tables(found: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    least = found["min_batch"]
    held = Table(box=SIMPLE_HEAD, caption=f"samples of groups smaller than {least} are not counted")
    held.add_column("party", no_wrap=True)
    for title in ("samples", "features", "labels"):
        held.add_column(title, justify="right", no_wrap=True)
    for party in found["parties"]:
        held.add_row(*(str(party[key]) for key in ("name", "samples", "features", "labels")))
    groups = Table(box=SIMPLE_HEAD, caption="who shares how many samples and features")
    for title in ("parties", "with labels"):
        groups.add_column(title)
    for title in ("samples", "features"):
        groups.add_column(title, justify="right", no_wrap=True)
    for group in found["groups"]:
        names = (", ".join(group["holders"]), ", ".join(group["labels"]) or "none")
        groups.add_row(*names, str(group["samples"]), "")
    for group in found["features"]:
        groups.add_row(", ".join(group["holders"]), "", "", str(group["features"]))
    for table in (held, groups):
        Console(markup=False).print(table)
