"""Work in a process of its own, which is forked: a new one would load libraries for a second."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """What some work gives, as JSON can tell it; nothing of it happens in this process."""
    ours, childs = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = {"gives": work(*arguments)}
        except BaseException as error:
            found = {"breaks": repr(error)}
        os.write(childs, json.dumps(found).encode())
        os._exit(0)
    os.close(childs)
    with os.fdopen(ours) as told:
        found = json.load(told)
    os.waitpid(child, 0)
    assert "breaks" not in found, found["breaks"]
    return found["gives"]


def forget(*packages: str) -> None:
    """Load nothing of these packages that is loaded already, but all of it anew when asked for."""
    for name in [*sys.modules]:
        if name.split(".")[0] in packages:
            del sys.modules[name]
