"""``weft noise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def noise(
    config: Annotated[Path, typer.Argument(help="The federation's config.toml, with [noise].")],
    out: Annotated[Path, typer.Option(help="New file for the plot.")] = Path("noise.png"),
    epsilon: Annotated[
        list[float] | None, typer.Option(help="An ε to try, once for each; default: 0.1 to 100.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Draws of the noise for each ε.")] = 100,
    test_share: Annotated[float, typer.Option(help="Share of the samples to measure on.")] = 0.25,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Show what noise in the released model would cost in accuracy, before anybody asks for it.

    All tables are in one hand here: a public table like yours, or simulated ones. The model is
    trained once, on all samples but those held out, with rows shortened to row_norm; then it is
    measured with many draws of the noise that each epsilon takes.
    """
    from dataclasses import asdict

    from weft.cli.terminal_output import say, say_json
    from weft.config.read_config import read_config
    from weft.errors import ConfigError
    from weft.solvers.algorithm_choice import settled
    from weft_evaluation.noise_curve import noise_curve, plot_noise

    if draws < 1:
        raise ConfigError(f"--draws is {draws}; give a whole number of at least 1")
    if out.exists():
        raise ConfigError(f"{out} exists already; name another file with --out")
    plan = read_config(config)
    problem = plan.problem()
    found = noise_curve(
        problem.tiles,
        problem.preprocessing,
        settled(problem.settings)[0],
        epsilon or _EPSILONS,
        draws=draws,
        test_share=test_share,
    )
    remark = plot_noise(found, out, title=plan.name)
    if json:
        say_json(asdict(found))
        return
    say(
        f"{plan.name}: accuracy {found.without:.1%} without noise, on {found.tested} samples",
        *(
            f"- ε = {point.epsilon:g}: σ = {point.sigma:.3g} in every weight, accuracy "
            f"{point.accuracy:.1%} ({point.low:.1%} to {point.high:.1%})"
            for point in found.points
        ),
        remark or f"The plot is {out}.",
    )
