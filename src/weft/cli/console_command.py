"""``weft console``: a live page about the federation, in a browser of this machine."""

from __future__ import annotations

import signal
from contextlib import closing
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.shared_kit_command_options import KitFolder

if TYPE_CHECKING:
    from weft.network.console.shared_view_records import Viewpoint
    from weft.network.kits.kit_folder import Kit


def console(
    kit: KitFolder,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of this machine; 0: a free one.")
    ] = 0,
) -> None:
    """Show a live page about the federation in a browser of this machine, until Ctrl-C.

    Prints the page's address, which is random and works on this machine only. With the
    coordinator's kit its files are shown: sites, runs, the queue, gaps over time, what parties have
    exposed, certificates and disk. With a submitter's kit, what weft status says, followed. With a
    site's kit, its connection, its runs and its own ledger.

    The page changes nothing, loads nothing from elsewhere, and has no paths, samples or columns.
    """
    from weft.cli.terminal_output import say
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes import require_engine

    require_engine()
    viewpoint = _viewpoint(Kit.open(kit))
    from weft.network.console.page_server import PageServer

    with closing(viewpoint), PageServer(viewpoint, port) as server:
        say(f"Open {server.address} in a browser of this machine; Ctrl-C ends it.")
        signal.signal(signal.SIGTERM, _end)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("Ended.")


def _viewpoint(kit: Kit) -> Viewpoint:
    if kit.kind == "coordinator":
        from weft.network.console.coordinator_view import CoordinatorView

        return CoordinatorView(kit)
    if kit.kind == "site":
        from weft.network.console.site_view import SiteView

        return SiteView(kit)
    from weft.network.console.submitter_view import SubmitterView

    return SubmitterView(kit)


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
