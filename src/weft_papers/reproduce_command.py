"""``weft reproduce``: the papers' experiments."""

from __future__ import annotations

import typer

from weft_papers import redraw_command
from weft_papers.fedhybrid import command as fedhybrid_command
from weft_papers.hyfdca import command as hyfdca_command
from weft_papers.hyfem import command as hyfem_command

reproduce = typer.Typer(no_args_is_help=True, help="The papers' experiments, run anew.")
reproduce.command(epilog=hyfdca_command.EPILOG)(hyfdca_command.hyfdca)
reproduce.command(epilog=hyfem_command.EPILOG)(hyfem_command.hyfem)
reproduce.command(epilog=fedhybrid_command.EPILOG)(fedhybrid_command.fedhybrid)
reproduce.command("all", epilog=redraw_command.EPILOG)(redraw_command.redraw_all)
