"""Predictions of a model for samples, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from weft.array_types import Floats
from weft.federation.model import Model
from weft.storage.atomic_files import replacing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Predictions:
    """Scores of samples by a model, (samples × classes), and what follows from them."""

    model: Model
    ids: NDArray[Any]
    scores: Floats

    def frame(
        self,
        *,
        with_scores: bool = True,
        with_probabilities: bool = False,
        threshold: float | None = None,
    ) -> pd.DataFrame:
        """A table with id and prediction, and score and probability of every class if wished.

        With a ``threshold``, the second of two classes is predicted from that probability on.
        """
        import pandas as pd

        model, scores = self.model, self.scores
        frame = pd.DataFrame({"id": self.ids, "prediction": model.outcome(scores, threshold)})
        if with_probabilities and model.classes is not None:
            for value, column in zip(
                model.classes.tolist(), model.probabilities(scores).T, strict=True
            ):
                frame[f"probability {value}"] = column
        elif with_probabilities:
            # Says why there are none.
            model.probabilities(scores)
        if with_scores and scores.shape[1] == 1:
            frame["score"] = scores[:, 0]
        elif with_scores and model.classes is not None:
            for column, value in enumerate(model.classes.tolist()):
                frame[f"score {value}"] = scores[:, column]
        return frame

    def save(self, path: Path) -> None:
        """Write the table with all scores to a CSV file, whole or not at all."""
        with replacing(path) as draft:
            self.frame().to_csv(draft, index=False)
