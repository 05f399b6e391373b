"""Commands that plug-ins add."""

from __future__ import annotations

import typer

from weft.plugins import Command, Registry


def add_plugin_commands(app: typer.Typer) -> list[str]:
    """Add the commands of all plug-ins; returns a sentence for each that is left out."""
    added = Registry[Command]("commands", {}, lambda value: isinstance(value, Command))
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    problems = list(added.problems)
    # Groups first: other plug-ins may add commands to them.
    for words, command in sorted(added.items(), key=lambda item: item[0].count(" ")):
        group, _, name = words.rpartition(" ")
        parent = groups.get(group) if group else app
        if parent is None:
            problems.append(f"a plug-in adds '{words}', but there is no group '{group}'")
        elif name in _names(parent):
            problems.append(f"a plug-in adds '{words}', which there is already")
        elif isinstance(command.run, typer.Typer):
            parent.add_typer(command.run, name=name, epilog=command.epilog)
            groups.setdefault(words, command.run)
        else:
            parent.command(name, epilog=command.epilog)(command.run)
    return problems


def _names(app: typer.Typer) -> set[str]:
    """The commands and groups that there are, named as Typer names them."""
    named = {(c.name, c.callback) for c in app.registered_commands}
    groups = {str(group.name) for group in app.registered_groups}
    return groups | {
        name or callback.__name__.replace("_", "-") for name, callback in named if callback
    }
