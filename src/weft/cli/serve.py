"""``weft serve``: be the coordinator of a federation."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.shared_kit_command_options import KitFolder, LogOption, MetricsFile


def serve(
    kit: KitFolder,
    record: Annotated[
        bool | None,
        typer.Option(
            "--record/--no-record",
            help="Keep the messages of every run here, for weft audit; at first off.",
            show_default=False,
        ),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A party that no run takes any more; may be repeated."),
    ] = None,
    admit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take a party again that was denied; may be repeated."),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(min=1, max=4, help="Runs under way at the same time; kept, at first 1."),
    ] = None,
    each_at_once: Annotated[
        int | None,
        typer.Option(min=1, help="Of these, those of one submitter; kept, at first all."),
    ] = None,
    each_waiting: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of one submitter in the queue; kept, at first 20."),
    ] = None,
    log: LogOption = None,
    metrics: MetricsFile = None,
) -> None:
    """Be the coordinator of a federation, until Ctrl-C or SIGTERM.

    Listens on the port of the kit, and lets in whoever shows a certificate of the federation: sites
    that run weft join, and submitters. A line is printed for every event; the same lines are in
    KIT/weft/events.log, and what the engine says in KIT/weft/engine.log.

    What runs need to go on after a crash lies in KIT/weft/runs.

    With --record every run that begins or is resumed from now on also leaves its messages there, in
    KIT/weft/runs/RUN/messages.weft, readable by the owner of this process only: what the
    coordinator sees anyway, ciphertext and masked scalars, and of runs that show it weights, those.
    weft audit KIT/weft/runs/RUN --roster FILE shows what each side could read, and checks what the
    parties signed. No submitter and no site gets it. It stays until the run is given up (weft stop
    --forget) or somebody deletes it. The choice is kept in the kit, until --no-record is given.

    A member that was removed may stay connected until its certificate expires. --deny NAME refuses
    every run with it at once; that too is kept in the kit, until --admit NAME is given.

    Runs wait in a queue, in which submitters take turns. With --at-once 2 two of them are under way
    at the same time; each has pads, journals and secrets of its own, and in the sites' ledgers each
    counts what the other has booked, so that a site may refuse what it would have answered one run
    after the other.

    With --log json every event is one JSON object, with the run that it is about, and nothing in it
    that must stay on this machine; the same lines are in KIT/weft/events.jsonl.
    """
    from weft.network.kits.kit_folder import Kit
    from weft.network.nvflare_processes import require_engine

    require_engine()
    opened = Kit.open(kit, "coordinator")
    from weft.network.nvflare_processes import serve_and_join as processes
    from weft.network.run_queue import QueueLimits
    from weft.network.serve_settings import ServeSettings, read_serve_settings

    before = read_serve_settings(opened)
    denied = {*before.denied, *(deny or ())} - {*(admit or ())}
    queue = before.queue
    settings = ServeSettings(
        record=before.record if record is None else record,
        denied=tuple(sorted(denied)),
        queue=QueueLimits(
            at_once=at_once or queue.at_once,
            each_at_once=each_at_once or queue.each_at_once,
            each_waiting=each_waiting or queue.each_waiting,
        ),
        log=log or before.log,
        metrics="" if metrics is None else str(metrics.absolute()),
    )
    processes.serve(opened, settings)
