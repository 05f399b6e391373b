"""What this package adds to Weft: ``weft compare``, ``weft tune`` and ``weft noise``."""

from __future__ import annotations

from weft.plugins import Command, Plugin


def _commands() -> dict[str, Command]:
    from weft_evaluation.compare_command import compare
    from weft_evaluation.noise_command import noise
    from weft_evaluation.tune_algorithm_options_command import tune

    return {
        "compare": Command(
            compare,
            epilog="Example: weft compare parties/config.toml --round-trips 200 --test-share 0.2",
        ),
        "noise": Command(
            noise, epilog="Example: weft noise parties/config.toml --epsilon 1 --epsilon 10"
        ),
        "tune": Command(
            tune, epilog="Example: weft tune parties/config.toml --algorithm fedavg --seconds 120"
        ),
    }


PLUGIN = Plugin(commands=_commands)
