"""HyFDCA in the place of a fast solver at a party, when another party is gone.

All sums must go on as if the one that is gone still stood where it was. Every holder of a cohort
knows its totals; one of them puts them in, the others nothing, and all go on telling how their own
parts change. So what the missing party had put in stays in, and nobody learns it.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol import Message
from weft.protocol.message import array
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.party_context import PartyContext
from weft.solvers.settings import Settings

Floats = NDArray[np.float64]

#: Between the seeds of two hand-overs.
_APART = 0x10001


class Successor:
    """HyFDCA's half, begun at a mixture of dual vectors.

    Parameters
    ----------
    number
        Which of the run's hand-overs this is, from 1 on.
    """

    def __init__(self, context: PartyContext, settings: Settings, lam: float, number: int) -> None:
        self._view = context.view
        self._lam = lam
        self.number = number
        # Setting up sums norms and products over those who are there. The next time they may be
        # others, and differences of the two would be single parties': so never again the norms of
        # single samples, nor products with the same random vector.
        alone = msgspec.structs.replace(
            settings,
            solver="hyfdca",
            lam=lam,
            path=(),
            folds=0,
            groups=1,
            local="safe",
            norms=settings.norms if number == 1 else "cohort",
            seed=settings.seed + _APART * (number - 1),
        )
        self.half = HyfdcaParty(replace(context, start=None), alone)

    def begin(self, alpha: Floats, w: Floats, z: Floats, message: Message) -> Message:
        """Stand at α, w(α) and its z, of the problems on all samples."""
        view = self._view
        rows, columns = view.n_shared_rows, view.n_shared_columns
        classes = self.half.alpha.shape[1]
        w, z = w[:, :classes], z[:rows, :classes]
        v = self._lam * view.n_samples * w[:columns]
        mine = self._spoken_for(message, "columns", view.column_cohort[:columns])
        v = np.where(mine[:, None], v, 0.0)
        mine = self._spoken_for(message, "rows", view.row_cohort[:rows])
        z = np.where(mine[:, None], z, 0.0)
        return self.half.take_over(alpha[:, :classes], w, z, v, message)

    def _spoken_for(
        self, message: Message, field: str, cohort: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        """Per slot, whether this party speaks for its cohort."""
        flags = array(message, field)
        if flags.dtype != bool or flags.ndim != 1 or len(flags) <= int(cohort.max(initial=-1)):
            raise ProtocolError(f"a message is malformed: '{field}' has no flag per cohort")
        chosen: NDArray[np.bool_] = flags[cohort]
        return chosen
