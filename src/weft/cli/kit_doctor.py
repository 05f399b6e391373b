"""``weft doctor``: what keeps a kit from working."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.shared_kit_command_options import AsJson, KitFolder

_WORDS = {"good": "good", "soon": "SOON", "bad": "BAD"}


def doctor(
    kit: KitFolder,
    running: Annotated[
        bool,
        typer.Option(
            "--running", help="Also say whether weft serve or join runs with it, and is connected."
        ),
    ] = False,
    json: AsJson = False,
) -> int:
    """Look for what keeps a kit from working: clock, certificates, disk, memory, the coordinator.

    For a kit of any kind, whether or not Weft runs with it; changes nothing, and talks to nobody
    but the coordinator, with which it does a handshake. Every line that is not good has a mend. The
    exit code is 2 if something is bad, else 0.

    With --running it is bad as well if weft serve or weft join does not run with this kit, gives no
    signs of life, or, at a site, has no connection: a health check for monitors and containers.
    """
    import msgspec

    from weft.cli.terminal_output import say, say_json
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes import require_engine

    require_engine()
    opened = Kit.inspect(kit)
    from weft.network.nvflare_processes.kit_health import examine_kit

    found = examine_kit(opened, running=running)
    healthy = all(symptom.state != "bad" for symptom in found)
    if json:
        told = {"kit": str(opened.path), "kind": opened.kind, "name": opened.name}
        say_json({**told, "healthy": healthy, "found": msgspec.to_builtins(found)})
    else:
        for symptom in found:
            mend = f"; {symptom.mend}" if symptom.mend else ""
            say(f"{_WORDS[symptom.state]}  {symptom.about}: {symptom.found}{mend}")
    return 0 if healthy else 2
