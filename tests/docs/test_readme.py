"""What the README shows is what happens."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_the_first_lines_of_code_print_what_stands_below_them():
    code, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S).groups()
    said = StringIO()
    with redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})
    assert said.getvalue() == printed


def test_the_first_screen_has_the_two_commands_and_one_small_picture():
    assert "\nmake demo " in README
    assert "\nmake test " in README
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert (Path(__file__).parents[2] / picture).stat().st_size < 100_000
