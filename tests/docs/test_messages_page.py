"""docs/messages.md says what the declarations of messages say."""

from __future__ import annotations

import re

from pages import DOCS

from weft.all_messages import declared_phases
from weft.protocol.declared_message_fields import flat
from weft.report.protocol_message_reference import page, parts


def test_the_page_is_what_the_declarations_say():
    written = (DOCS / "messages.md").read_text()
    assert written == page(), (
        "run python -m weft.report.protocol_message_reference > docs/messages.md"
    )


def ours():
    """Weft's own phases: tests and benchmarks that ran before may have declared others."""
    return {
        name: phase
        for name, phase in declared_phases().items()
        if all(
            kind.__module__.startswith(("weft.", "weft_neural."))
            for kind in (phase.request, phase.reply)
        )
    }


def test_every_phase_and_every_part_has_a_place_of_its_own():
    headings = re.findall(r"^### (.+)$", page(), re.MULTILINE)
    assert sorted(headings) == sorted([*ours(), *(part.__name__ for part in parts())])


def test_every_field_says_in_which_form_it_travels_and_what_it_is():
    for phase in ours().values():
        for kind in (phase.request, phase.reply):
            for name, field in flat(kind):
                meaning = field.meaning
                assert meaning is not None, name
                assert meaning.what, name
                assert meaning.form.readers, name
