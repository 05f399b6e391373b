"""What this package adds to Weft: ``weft compare`` and ``weft tune``."""

from __future__ import annotations

from weft.plugins import Command, Plugin


def _commands() -> dict[str, Command]:
    from weft_evaluation.compare_command import compare
    from weft_evaluation.tune_command import tune

    return {
        "compare": Command(
            compare,
            epilog="Example: weft compare parties/config.toml --round-trips 200 --test-share 0.2",
        ),
        "tune": Command(
            tune, epilog="Example: weft tune parties/config.toml --algorithm fedavg --seconds 120"
        ),
    }


PLUGIN = Plugin(commands=_commands)
