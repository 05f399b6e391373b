"""Threads decode types of Weft's own at any time; two that prepare one at once end the process."""

from __future__ import annotations

import ast
import threading
import time
from pathlib import Path

import msgspec
import pytest

import weft
from weft import thread_safe_decoding

SOURCES = Path(weft.__file__).parents[1]
#: Of these msgspec keeps nothing, so that threads need not wait for each other.
PLAIN = {"dict", "list", "tuple", "str", "bytes", "int", "float", "bool", "Any", "object"}


def test_types_are_prepared_one_at_a_time(monkeypatch):
    at_once, most, prepare = [], [], msgspec.msgpack.Decoder

    def slowly(kind):
        at_once.append(kind)
        most.append(len(at_once))
        time.sleep(0.005)
        found = prepare(kind)
        at_once.pop()
        return found

    monkeypatch.setattr(thread_safe_decoding.msgspec.msgpack, "Decoder", slowly)
    inner = msgspec.defstruct("Inner", [("a", int)])
    kinds = [msgspec.defstruct(f"Outer{k}", [("inner", inner)]) for k in range(4)]
    threads = [
        threading.Thread(target=thread_safe_decoding.prepared, args=(kind,)) for kind in kinds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]
    assert thread_safe_decoding.prepared(kinds[0]) is kinds[0]
    assert len(most) == 4  # what is prepared once stays so


def kinds_decoded(tree: ast.AST) -> list[ast.expr]:
    """The types that a module hands to msgspec."""
    found = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        if name.startswith("msgspec.") and name.endswith((".decode", ".Decoder")):
            found += [k.value for k in call.keywords if k.arg == "type"]
            found += call.args[:1] if name.endswith(".Decoder") else []
        elif name == "msgspec.convert":
            found += [call.args[1]]
    return found


def ready(kind: ast.expr) -> bool:
    """Whether threads may decode this type at once."""
    if isinstance(kind, ast.Call):
        return ast.unparse(kind.func) == "prepared"
    return {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)} <= PLAIN


@pytest.mark.parametrize("package", ["weft", "weft_neural"])
def test_every_type_that_is_decoded_is_prepared(package):
    found, wrong = 0, []
    for path in sorted((SOURCES / package).rglob("*.py")):
        if path.name == "thread_safe_decoding.py":
            continue
        text = path.read_text(encoding="utf-8")
        kinds = kinds_decoded(ast.parse(text)) if "msgspec" in text else []
        found += len(kinds)
        wrong += [f"{path.name}:{kind.lineno}" for kind in kinds if not ready(kind)]
    assert not wrong, "msgspec.….decode(…, type=prepared(Type)), see weft/thread_safe_decoding.py"
    assert found >= 3
