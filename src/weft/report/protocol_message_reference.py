"""The page of all messages, made from their declarations.

``python -m weft.report.protocol_message_reference > docs/messages.md``, after a declaration has
changed.
"""

from __future__ import annotations

import numpy as np

from weft.all_messages import MODULES, declared_phases
from weft.protocol.declared_message_fields import ANY, Field, Message, Part, declared
from weft.protocol.phase_with_request_and_reply import Phase

HEAD = """# All messages

Every phase, with the fields of its request (coordinator to party) and of its reply (party to
coordinator). `python -m weft.report.protocol_message_reference > docs/messages.md` makes this page
from the declarations in the code, and a test holds it against them. Decoding refuses every message
that differs from its declaration (`src/weft/protocol/declared_message_fields.py`).
[protocol.md](protocol.md) says in which order phases come, and why.

- *absent*: `no`: a message without the field is refused; `yes`: it may lack the field, and the
  value after the colon, if there is one, holds then.
- *form* and *who reads it*: how the field travels, and who can read it besides its sender. Under
  the cipher `plain`, which is for simulations, blocks and scalars are not hidden.
- A field whose type is a [part](#parts) travels as the fields of that part, with the forms named
  there; their names on the wire are like `z_pads.chain`.
"""
_TITLES = ("field", "type and shape", "absent", "form", "who reads it", "what it is")


def page() -> str:
    """The whole page, as Markdown."""
    sections = [HEAD]
    for module in MODULES:
        name = module.__name__
        sections.append(f"## {name.rpartition('.')[0]}\n")
        sections.append(f"Declared in `src/{name.replace('.', '/')}.py`.\n")
        sections.extend(_phase(each) for each in vars(module).values() if isinstance(each, Phase))
    sections.append("## Parts\n")
    sections.extend(f"### {kind.__name__}\n\n{_table(kind)}\n" for kind in parts())
    return "\n".join(sections)


def parts() -> list[type[Part]]:
    """All parts that some message has, by name."""
    found: set[type[Part]] = set()
    todo: list[type[Message] | type[Part]] = []
    for phase in declared_phases().values():
        todo.extend((phase.request, phase.reply))
    while todo:
        new = {field.kind for field in declared(todo.pop()) if issubclass(field.kind, Part)} - found
        found |= new
        todo.extend(new)
    return sorted(found, key=lambda kind: kind.__name__)


def _phase(phase: Phase[Message, Message]) -> str:
    down = _message("Request", phase.request)
    up = _message("Reply", phase.reply)
    return f"### {phase.name}\n\n{down}\n{up}"


def _message(direction: str, kind: type[Message]) -> str:
    if not declared(kind):
        return f"{direction}: no fields.\n"
    return f"{direction}, `{kind.__name__}`:\n\n{_table(kind)}\n"


def _table(kind: type[Message] | type[Part]) -> str:
    rows = [_TITLES, ("---",) * len(_TITLES), *(_row(field) for field in declared(kind))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(field: Field) -> tuple[str, ...]:
    name, meaning = f"`{field.name}`", field.meaning
    if meaning is None:
        kind = field.kind.__name__
        return name, f"[{kind}](#{kind.lower()})", _absent(field), "", "", ""
    form = meaning.form
    return name, _type(field), _absent(field), form.title, form.readers, meaning.what


def _type(field: Field) -> str:
    if field.kind is not np.ndarray or field.meaning is None:
        return field.kind.__name__
    dtype = "text" if field.dtype is None else str(field.dtype)
    if field.dtype == ANY:
        dtype = "text, numbers or flags"
    return f"{dtype}: {' × '.join(field.meaning.shape)}"


def _absent(field: Field) -> str:
    if field.required:
        return "no"
    return "yes" if field.default is None else f"yes: {str(field.default).lower()}"


if __name__ == "__main__":
    print(page(), end="")
