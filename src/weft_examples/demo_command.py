"""``weft demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="New folder for model, history and report; by default results/demo, in which "
            "the next demo takes its place."
        ),
    ] = None,
    cipher: Annotated[
        str,
        typer.Option(
            help="What hides sums from the coordinator: pad, bfv, paillier, or plain (nothing)."
        ),
    ] = "pad",
    solver: Annotated[
        str,
        typer.Option(help="auto (here cutting planes), or hyfdca, which needs more round trips."),
    ] = "auto",
    sealed: Annotated[
        bool,
        typer.Option("--sealed", help="Train on shares: no party sees a score or a weight."),
    ] = False,
) -> None:
    """Nine parties learn even from odd digits, and liblinear checks them.

    Each party holds a third of the rows and a third of the columns of scikit-learn's digits.
    The command trains them together, trains liblinear on the pooled table and every party alone,
    and prints how the three compare and what the federation cost, encryption included. It takes
    a few seconds; with --cipher paillier, the papers' scheme, a smaller problem takes a minute.
    With --solver hyfdca, the papers' algorithm, slow ciphers take longer by far.
    """
    # Late imports here and in the other commands: they take a second that --help need not wait.
    from weft.cli.terminal_output import ProgressLine, say, say_json
    from weft.report.page import PAGE
    from weft.report.results_folder import write_results
    from weft.storage.atomic_folder import building
    from weft_examples.choose_demo_results_folder import folder_for
    from weft_examples.demo import NAME, run_demo

    folder = folder_for(out, "demo", NAME, json=json)
    with ProgressLine(quiet=json) as line:
        done = run_demo(cipher, line, solver="sealed" if sealed else solver)
    if folder is not None:
        with building(folder, replace=out is None) as draft:
            write_results(
                draft,
                done.trained,
                done.settings,
                name=NAME,
                accuracy=done.accuracy(),
                feature_sets=done.feature_sets(),
                command=context.obj or "",
            )
    figures = done.figures
    if json:
        say_json(figures.to_dict())
        return
    say(
        f"loss, federated                {figures.loss:.6f}",
        f"loss, liblinear on pooled data {figures.loss_liblinear:.6f}",
        f"relative difference            {figures.relative_difference:.1e}",
        f"certified gap                  {figures.certified_gap:.1e} "
        f"(at iteration {figures.certified_at})",
        "",
        f"accuracy on {figures.test_samples} held-out images",
        f"  federated                    {figures.accuracy:.1%}",
        f"  liblinear on pooled data     {figures.accuracy_central:.1%}",
        f"  best party alone ({figures.best_party})      {figures.accuracy_best_party:.1%}",
        f"  the most frequent class      {figures.accuracy_majority:.1%}",
        "",
        f"round trips                    {figures.round_trips} (solver {figures.solver})",
        f"bytes                          {figures.bytes:,}",
        f"seconds                        {figures.seconds:.1f}",
        f"of these, on encryption        {figures.encryption_seconds:.2f} s "
        f"({figures.cipher}; slowest party {figures.slowest_party_encryption_seconds:.2f} s), "
        f"{figures.encryption_bytes:,} bytes, {figures.values_encrypted:,} values",
        f"guards                         on: sums change by {figures.min_batch} samples or more, "
        "or not at all",
        "",
        figures.explanation(),
        *(f"- {remark}" for remark in figures.remarks),
    )
    if folder is not None:
        say("", f"See all of it in a browser: {folder / PAGE}")
