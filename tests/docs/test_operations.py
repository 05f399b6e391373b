"""Every command that the pages for operators name exists, with its options."""

from __future__ import annotations

import re
import shlex
from functools import cache

import pytest
from pages import DOCS
from typer.main import get_command

from weft.cli import command_line

#: Pages that somebody on call types from.
PAGES = ("operations.md", "deploy.md", "kits.md", "federation-life.md")


def commands(page):
    """What stands in backticks or blocks and begins with ``weft``."""
    text = (DOCS / page).read_text("utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", rest)]
    found = [re.sub(r"^(ExecStart=\S*/|\$ )", "", line.strip()) for line in found]
    return [line for line in found if re.match(r"weft [a-z]", line)]


@cache
def all_commands():
    """Made from all functions and their types: that takes as long as a hundred lines."""
    return get_command(command_line()[0])


def problem(line):
    """What is wrong with a command; None: nothing."""
    # What a shell does with it afterwards is another matter.
    words = shlex.split(re.split(r" (?:\|\|?|&&?|>)(?: |$)", line)[0], comments=True)[1:]
    command = all_commands()
    while words and hasattr(command, "commands"):
        known = command.commands.get(words[0])
        if known is None:
            return f"no command {words[0]}"
        command, words = known, words[1:]
    options = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts)}
    places = sum(1 for p in command.params if p.param_type_name == "argument" and p.nargs == 1)
    many = any(p.nargs == -1 for p in command.params)
    while words:
        word = words.pop(0)
        name, _, given = word.partition("=")
        if name.startswith("-") and name != "-":
            if name not in options:
                return f"no option {name}"
            if not given and not getattr(options[name], "is_flag", False) and words:
                words.pop(0)
        elif word not in ("…", "..."):
            places -= 1
    return "too many arguments" if places < 0 and not many else None


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page):
    found = commands(page)
    assert len(found) > 5
    wrong = {line: why for line in found if (why := problem(line)) is not None}
    assert wrong == {}


def test_a_command_that_does_not_exist_is_found_out():
    assert problem("weft serve KIT --at-once 2") is None
    assert problem("weft serve KIT --at-twice 2") == "no option --at-twice"
    assert problem("weft revive KIT") == "no command revive"
    assert problem("weft doctor KIT KIT") == "too many arguments"
