"""The sequence diagrams of docs/protocol.md are what recorded runs do, arrow by arrow."""

from __future__ import annotations

import re

import msgspec
import pytest
from pages import blocks

from weft import Federation, Preprocessing, Settings
from weft.data import SPLITS, Table, load
from weft.guards import OPEN
from weft.privacy.audit.field_evidence import fields_of, meaning_of
from weft.protocol.field_visibility import Form

_ARROW = re.compile(r"^\s*(\w)(-?->>)(\w): ([\w.]+)(.*)$")
_MARK = re.compile(r"\[(\w+)\]")
MARKS = {
    "holders": {Form.BLOCK},
    "sum": {Form.SCALARS},
    "tokens": {Form.TOKENS},
    "sealed": {Form.SEALED},
    "open": {Form.KEYS, Form.RECORD, Form.NUMBERS, Form.TEXTS, Form.COEFFICIENTS},
}
#: What the coordinator reads and a reader of the diagram must be told of; records are small change.
TOLD = {Form.NUMBERS, Form.TEXTS, Form.COEFFICIENTS}


def arrows(number):
    """Phase and direction of every arrow, with the marks on it."""
    found = {}
    for line in blocks("protocol.md", "mermaid")[number].splitlines():
        assert not re.search(r"[;#]|\S.*\bend\b", line), f"mermaid would cut this line: {line}"
        arrow = _ARROW.match(line)
        if arrow is None:
            assert ">>" not in line, f"no arrow that this test reads: {line}"
            continue
        begin, kind, aim, phase, words = arrow.groups()
        direction = "up" if kind == "-->>" else "down"
        assert (aim if direction == "up" else begin) == "C", line
        assert (phase, direction) not in found, f"{phase} goes {direction} twice"
        found[phase, direction] = set(_MARK.findall(words))
    return found


@pytest.fixture(scope="module")
def recorded():
    """What two runs sent: per phase and direction, the forms of all fields."""
    whole = load("breast_cancer")
    few = slice(0, 90)
    table = Table(whole.ids[few], whole.features, whole.block[few], whole.labels[few], whole.task)
    how = {"parties": 3, "row_share": 0.6, "column_share": 0.6, "labels": "first"}
    split = SPLITS["overlapping"](table, **how)
    found = []
    for settings in (
        Settings(lam=1e-1, solver="hyfdca", iterations=4, gap=None, participation=0.7),
        Settings(lam=1e-1, solver="lbfgs", loss="logistic", gap=1e-2, folds=2),
    ):
        preprocessing = Preprocessing(
            scaling="standard", unit_rows=True, matching="oprf", overlap=split.overlap
        )
        terms = msgspec.structs.replace(OPEN, min_batch=2)
        federation = Federation(split.parties, preprocessing, record=True, terms=terms)
        trained = federation.train(settings)
        seen = {}
        for each in trained.channel.transcript:
            for direction, message in (("down", each.message), ("up", each.reply)):
                forms = seen.setdefault((each.phase, direction), set())
                meanings = [meaning_of(direction, each.phase, field) for field in message]
                forms.update(m.form for m in meanings if not m.common)
        found.append(seen)
    return found


def both(run):
    """The arrows that a run must agree with: those of its solver, and of all that is common."""
    whole, fast = arrows(0), arrows(1)
    if run == 0:
        return whole
    common = {key: marks for key, marks in whole.items() if "fdca" not in key[0]}
    return {**common, **fast}


@pytest.mark.parametrize("run", [0, 1], ids=["hyfdca", "lbfgs"])
def test_every_phase_of_a_recorded_run_is_drawn_in_its_order(run, recorded):
    drawn = both(run)
    seen = [phase for phase, direction in recorded[run] if direction == "down"]
    known = [phase for phase, direction in drawn if direction == "down"]
    assert set(seen) <= set(known)
    if run == 0:
        assert [phase for phase in known if phase in seen] == seen
        # What only some runs have: penalties of columns, balanced classes, readers of the model.
        only_some = {"scale.penalties", "weigh.classes", "release.model"}
        assert set(known) - set(seen) == only_some
    own = [phase for phase in seen if phase.startswith("subspace.")]
    assert run == 0 or own == [phase for phase in known if phase.startswith("subspace.")]


@pytest.mark.parametrize("run", [0, 1], ids=["hyfdca", "lbfgs"])
def test_the_marks_of_an_arrow_say_in_which_form_everything_travelled(run, recorded):
    drawn = both(run)
    for (phase, direction), forms in recorded[run].items():
        marks = drawn.get((phase, direction))
        if marks is None:
            assert not forms, f"nothing is drawn for what {phase} sends {direction}"
            continue
        hidden = {mark for mark in marks if mark != "open"}
        assert {f for f in forms if f.hides} == set().union(*(MARKS[m] for m in hidden)), phase
        if forms & TOLD:
            assert "open" in marks, f"{phase} {direction}"
        if "open" in marks:
            assert forms & MARKS["open"], f"{phase} {direction}"


@pytest.mark.parametrize("number", [0, 1])
def test_every_arrow_is_of_a_phase_that_the_table_of_fields_knows(number):
    for (phase, direction), marks in arrows(number).items():
        forms = {meaning.form for meaning in fields_of(direction, phase).values()}
        for mark in marks:
            assert forms & MARKS[mark], f"{phase} {direction} has nothing that is [{mark}]"
