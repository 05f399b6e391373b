"""What only compiled code may call, nothing else calls: Python would crash, without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def decorators(function: ast.FunctionDef) -> str:
    return " ".join(ast.unparse(each) for each in function.decorator_list)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))


def inner_functions(tree: ast.Module) -> set[str]:
    return {each.name for each in functions(tree) if "**INNER" in decorators(each)}


def called_from_python(tree: ast.Module, inner: set[str]) -> set[str]:
    """Names of inner functions that are used outside compiled functions."""
    found = set()
    compiled = [each for each in functions(tree) if "njit(" in decorators(each)]
    inside = {id(node) for each in compiled for node in ast.walk(each)}
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name in inner and isinstance(node, ast.Name | ast.Attribute) and id(node) not in inside:
            found.add(str(name))
    return found


def test_python_calls_no_function_without_an_entry_from_python():
    texts = {path: path.read_text("utf-8") for path in ROOT.glob("src/**/*.py")}
    texts |= {path: path.read_text("utf-8") for path in ROOT.glob("tests/**/*.py")}
    of_module = {
        path.stem: inner
        for path, text in texts.items()
        if "**INNER" in text and (inner := inner_functions(ast.parse(text)))
    }
    assert of_module
    for path, text in texts.items():
        if not any(module in text for module in of_module) and path.stem not in of_module:
            continue
        tree = ast.parse(text)
        inner = set(of_module.get(path.stem, ()))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                known = of_module.get(node.module.rpartition(".")[2], set())
                inner |= known & {each.name for each in node.names}
        assert not called_from_python(tree, inner), path


def test_a_call_from_python_is_found():
    source = "@njit(**INNER)\ndef inner(): ...\n@njit(cache=True)\ndef outer(): inner()\n"
    tree = ast.parse(source)
    assert inner_functions(tree) == {"inner"}
    assert not called_from_python(tree, {"inner"})
    tree = ast.parse(source + "def plain(): inner()\n")
    assert called_from_python(tree, {"inner"}) == {"inner"}
