"""The command line: ``weft --help`` says what there is."""

from __future__ import annotations

import atexit
import gc
import shlex
import sys
from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from weft import __version__
from weft.cli.add_plugin_commands import add_plugin_commands
from weft.cli.algorithms import algorithms
from weft.cli.audit import audit
from weft.cli.check import check
from weft.cli.console_command import console
from weft.cli.describe_columns import describe
from weft.cli.export import export
from weft.cli.federation_changes import life
from weft.cli.federation_founding import founding
from weft.cli.federation_kits import kits
from weft.cli.federation_rosters import federation
from weft.cli.init import init
from weft.cli.join_runs_as_site import join
from weft.cli.keys import keys
from weft.cli.kit_doctor import doctor
from weft.cli.ledger import ledger
from weft.cli.predict import predict
from weft.cli.prune import prune
from weft.cli.report import report
from weft.cli.serve import serve
from weft.cli.split import data_list, split
from weft.cli.status_and_stop import status, stop
from weft.cli.submit import submit
from weft.cli.train import train
from weft.errors import WeftError

__all__ = ["command_line", "main"]

# Typer brings click along, installed beside it or inside it, so click's class of wrong usage is
# reached through the one of its children that Typer exports.
_UsageError: Any = typer.BadParameter.__base__

#: What a shell expects of a program that Ctrl-C ended.
_INTERRUPTED = 130

_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"weft {__version__}")
        raise typer.Exit


_START = "Start with: weft demo. Then: weft split digits --split grid --k 3 --q 3 --out parties"


@_app.callback(epilog=_START)
def _weft(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which Weft.")
    ] = False,
) -> None:
    """Train one model on data that is cut both ways, with a proof of how good it is.

    Each party holds some rows and some columns of a table that nobody has. Weft matches the
    samples, trains, and certifies with a duality gap how far the model can be from the one that
    pooled data would give.
    """


_app.command(epilog="Example: weft split digits --split grid --k 3 --q 3 --out parties")(split)
_app.command(epilog="Example: weft init north.csv south.xlsx --id patient")(init)
_app.command(epilog="Example: weft check parties/config.toml")(check)
_app.command(epilog="Example: weft describe parties/config.toml --out described")(describe)
_app.command(epilog="Example: weft train parties/config.toml --out results/digits")(train)
_app.command(epilog="Example: weft algorithms fedavg")(algorithms)
_app.command(
    epilog="Example: weft predict results/digits/model.npz new.csv --id patient > predicted.csv"
)(predict)
_app.command(epilog="Example: weft export results/digits/model.npz digits.onnx card.json")(export)
_app.command(epilog="Example: weft report results/digits --figures")(report)
_app.command(epilog="Example: weft audit results/digits --party r1c1")(audit)
_app.command(epilog="Example: weft ledger parties/ledger --party r1c1")(ledger)
_app.command(epilog="Example: weft serve kits/coordinator")(serve)
_app.command(
    epilog="Example: weft join north --data rows.parquet --id patient --label outcome --keys keys"
)(join)
_app.command(epilog="Example: weft submit anna config.toml --keys keys --party north")(submit)
_app.command(epilog="Example: weft status anna")(status)
_app.command(epilog="Example: weft stop anna")(stop)
_app.command(epilog="Example: weft doctor north")(doctor)
_app.command(epilog="Example: weft console kits/coordinator")(console)
_app.command(epilog="Example: weft prune coordinator --older-than 90")(prune)

data = typer.Typer(no_args_is_help=True, help="Data sets that come by name.")
data.command("list", epilog="Example: weft data list")(data_list)
_app.add_typer(data, name="data")
_app.add_typer(keys, name="keys")
federation.add_typer(founding)
federation.add_typer(kits)
federation.add_typer(life)
_app.add_typer(federation, name="federation")


@cache
def command_line() -> tuple[typer.Typer, tuple[str, ...]]:
    """All commands, Weft's own and those of plug-ins; and why some plug-ins are left out.

    Plug-ins are loaded here, not when this module is imported: they may import it themselves.
    """
    problems = tuple(add_plugin_commands(_app))
    if problems:
        _app.callback(epilog=". ".join((_START, *problems)))(_weft)
    return _app, problems


def _alone(name: str) -> typer.Typer | None:
    """The command line with one command of Weft's own; None: there is no such command.

    Typer looks at the parameters of all commands before it runs one of them, and plug-ins take time
    to load: together as long as it takes to train on a small table.
    """
    own = (c for c in _app.registered_commands if c.name is None)
    found = [c for c in own if c.callback is not None and c.callback.__name__ == name]
    if not found:
        return None
    one = copy(_app)
    one.registered_commands, one.registered_groups = found, []
    return one


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    # Libraries make two hundred thousand objects that stay, and training next to no cycles: to look
    # for some while libraries load would take a tenth of a small run. Ending, the interpreter would
    # look through all objects again and again, and take them apart one by one, which takes longer
    # still; the system takes back their memory at once.
    gc.set_threshold(500_000)
    atexit.register(gc.freeze)
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        alone = _alone(given[0]) if given else None
        app, problems = command_line() if alone is None else (alone, ())
        # Reports say with which command they can be had again.
        code = app(given, prog_name="weft", standalone_mode=False, obj=shlex.join(["weft", *given]))
    except WeftError as error:
        _stop(str(error))
    except _UsageError as error:
        message = error.format_message().rstrip(".")
        if not message:  # no arguments: the help was printed instead
            sys.exit(2)
        if "No such command" in message:  # of a plug-in that is left out, perhaps
            message = "; ".join((message, *problems))
        command = error.ctx.command_path if error.ctx is not None else "weft"
        _stop(f"{message}; see '{command} --help'")
    except (typer.Abort, KeyboardInterrupt):
        _interrupted()
    if code == _INTERRUPTED:
        _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _interrupted() -> NoReturn:
    print(
        "weft: interrupted; weft train with checkpoint_every in its config goes on with --resume",
        file=sys.stderr,
    )
    sys.exit(_INTERRUPTED)


def _stop(sentence: str) -> NoReturn:
    print(f"weft: {sentence}", file=sys.stderr)
    sys.exit(2)
