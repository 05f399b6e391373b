"""What this package adds to Weft: the demos' commands."""

from __future__ import annotations

from weft.plugins import Command, Plugin


def _commands() -> dict[str, Command]:
    from weft_examples.demo_command import demo
    from weft_examples.network_demo_command import demo_network
    from weft_examples.neural_demo_command import neural_demo

    return {
        "demo": Command(demo, epilog="Example: weft demo --out demo-results"),
        "demo-network": Command(demo_network, epilog="Example: weft demo-network --out demo"),
        "neural demo": Command(neural_demo, epilog="Example: weft neural demo --out demo-results"),
    }


PLUGIN = Plugin(commands=_commands)
