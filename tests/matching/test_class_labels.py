"""Labels that measure something are no classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import HybridClassifier, HybridGLM, Tile
from weft.data import read_tile
from weft.errors import DataError, WeftError
from weft.matching.class_labels import refuse_responses

CLASSES: dict[str, Any] = {
    "words": ["a", "b", "c"] * 4,
    "two measures": [0.5, 1.5] * 6,
    "many whole numbers": list(range(30)) * 2,
    "floats that are whole": [0.0, 1.0, 2.0] * 4,
    "few samples, all unlike": list(range(12)),
    "flags": [True, False] * 6,
    "words and numbers": ["1", 2.5, "x"] * 4,
}


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_of_any_kind_are_taken(kind: str) -> None:
    refuse_responses(np.array(CLASSES[kind], dtype=object), "the label column")


@pytest.mark.parametrize("labels", [np.linspace(5.0, 50.0, 40), np.arange(40), ["1.5", "2", "7"]])
def test_a_response_is_refused_with_its_column_and_what_to_do(labels: Any) -> None:
    labels, rng = np.asarray(labels, object), np.random.default_rng(0)
    ids = [f"s{i}" for i in range(len(labels))]
    tile = Tile.make(ids, ["a"], rng.normal(size=(len(ids), 1)), labels, source="boston.csv")
    with pytest.raises(
        WeftError, match=r"party a: the label column of boston\.csv holds"
    ) as caught:
        HybridClassifier(lam=0.1).fit({"a": tile})
    told = str(caught.value)
    assert "use a regression loss" in told
    assert told.count(". ") == 0
    # What goes to others has no value and no count.
    with pytest.raises(DataError) as refused:
        refuse_responses(labels, "the label column")
    assert not any(sign.isdigit() for sign in refused.value.harmless)


def test_a_response_in_a_file_is_named_by_its_column(tmp_path: Path) -> None:
    path = tmp_path / "boston.csv"
    path.write_text("id,a,medv\n" + "".join(f"s{i},{i % 7},{i / 3}\n" for i in range(40)))
    tile = read_tile(path, id_column="id", label_column="medv")
    with pytest.raises(
        WeftError, match=r"party a: the label column 'medv' of \S*boston\.csv holds"
    ):
        HybridClassifier(lam=0.1).fit({"a": tile})
    with pytest.raises(WeftError, match=r"the label column 'medv' of \S*boston\.csv has responses"):
        HybridGLM("gamma").fit({"a": tile})
