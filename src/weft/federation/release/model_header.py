"""What the coordinator adds to a model: all of it but names and numbers of features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Result
from weft.thread_safe_decoding import prepared


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a model without its weights.

    Attributes
    ----------
    classes
        Class values, None for regression.
    lam
        λ of the released model.
    certificate
        ``primal``, ``dual`` (per class) and ``gap``; of a sealed run ``measured`` too, the mean
        loss, how far it may be off, and how steep P is (per class). Empty if there is none.
    info
        Solver, parties, to whom the model goes (None: no roster says so), and its noise if any.
    """

    classes: list[Any] | None
    loss: str
    loss_parameters: dict[str, float]
    lam: float
    certificate: dict[str, Any]
    info: dict[str, Any]

    @classmethod
    def of(
        cls,
        settings: Settings,
        result: Result,
        classes: NDArray[Any] | None,
        parties: Sequence[str],
        recipients: Sequence[str] | None,
    ) -> Self:
        """The head of the model that a run has ended with."""
        certificate = result.certificate
        return cls(
            classes=None if classes is None else classes.tolist(),
            loss=settings.loss,
            loss_parameters=dict(settings.loss_parameters),
            lam=(result.lam or settings.lam) if result.stage is None else result.stage.lam,
            # Its exact loss would tell of every sample what noise is to hide.
            certificate={}
            if certificate is None or settings.noise is not None
            else {
                "iteration": certificate.iteration,
                "primal": list(certificate.primal),
                "dual": list(certificate.dual),
                "gap": certificate.gap,
                **(
                    {"measured": [list(each) for each in certificate.measured]}
                    if certificate.measured
                    else {}
                ),
            },
            info={
                "solver": settings.solver,
                "parties": list(parties),
                "recipients": None if recipients is None else list(recipients),
                **({"threshold": settings.evaluation.threshold} if settings.evaluates else {}),
                **_noise(settings),
            },
        )

    def to_json(self) -> str:
        # Not msgspec's own, which has no infinity.
        return json.dumps(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return msgspec.convert(json.loads(text), prepared(cls))
        except (ValueError, msgspec.MsgspecError) as error:
            raise ProtocolError(f"the head of a model cannot be read: {error}") from None

    def insist_on(self, settings: Settings, classes: NDArray[Any] | None) -> None:
        """Refuse a head of another problem than a party was told to train."""
        known = None if classes is None else [str(value) for value in classes.tolist()]
        named = None if self.classes is None else [str(value) for value in self.classes]
        same = (self.loss, self.loss_parameters, named) == (
            settings.loss,
            settings.loss_parameters,
            known,
        )
        if not same or self.lam not in settings.lambdas:
            raise ProtocolError(
                "the model that came back is of another problem (loss, classes or λ) than the one "
                "that was trained; do not use it"
            )

    def class_values(self) -> NDArray[Any] | None:
        return None if self.classes is None else np.array(self.classes)


def _noise(settings: Settings) -> dict[str, Any]:
    """What is known of the noise in a model, if it has any."""
    return {} if settings.noise is None else {"noise": msgspec.to_builtins(settings.noise)}
