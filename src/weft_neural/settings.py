"""What a run of HyFEM is told: blocks, networks, local steps, matching."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal, Self

import msgspec

from weft.errors import ConfigError, ProtocolError
from weft.thread_safe_decoding import prepared
from weft_neural.neuron_matching import Matching

#: What these runs are called in refusals.
RUNS = "neural runs"
#: Layers and rows of a classifier that make sense; a message must not ask for more.
_MOST_LAYERS, _WIDEST = 16, 65_536
#: Weights between two hidden layers, and rounds, steps and samples of a step.
_MOST_WEIGHTS, _MOST = 1 << 28, 1_000_000


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of features that one extractor reads.

    Attributes
    ----------
    extractor
        Name of its network; ``weft neural extractors`` lists them.
    options
        What only this extractor reads.
    shape
        Of one sample; None: a vector of all its columns. The columns of a table fill it row by row.
    columns
        Which columns of a table it has, by names or patterns such as ``pixel_*``; None: those whose
        names begin with the block's, such as ``mri_1`` or ``mri.1`` in block ``mri``.
    scaling
        ``standard``: zero mean and unit variance over all who hold it. Images of bytes always go
        from −1 to 1 instead.
    """

    extractor: str = "mlp"
    options: dict[str, Any] = {}
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] | None = None
    scaling: Literal["none", "standard"] = "standard"

    def __post_init__(self) -> None:
        if self.shape is not None and (not self.shape or min(self.shape) < 1):
            raise ConfigError(
                f"a block has the shape {list(self.shape)}; give lengths of 1 or more"
            )


class TrainingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How networks are trained, whatever their blocks.

    Attributes
    ----------
    coordinator_sees
        Must be ``weights``: whoever matches classifiers sees them.
    hidden
        Rows of the classifier's hidden layers.
    method
        ``prox``: local steps on (8) of the 2024 text; ``avg``: without the pull, (9) of the 2020
        text.
    mu1, mu2
        Pull of extractors and of classifiers towards the server's, of ``prox``.
    rounds, steps
        T and Q.
    batch
        Samples of a local step; 0: all of them.
    rate, decay, decay_every
        The learning rate; it is multiplied by ``decay`` after every so many rounds (0: never).
    begin
        Where local steps begin: at the server's model (Algorithm 2), or at the party's ``own``,
        where it was left, as in the analysis (22).
    start
        Classifiers of the first round: a ``common`` one cut to each party's inputs, or each
        party's ``own``, which matching brings together.
    weigh
        p_m: by samples, or all parties the same.
    matching
        How classifiers are matched.
    test_share
        Share of its samples that a party keeps for measuring, where it has no others for that.
    evaluate_every
        Rounds from one measuring to the next.
    participation
        Who takes part in which round.
    cipher
        ``pad`` hides losses, accuracies and column sums of single parties; ``plain`` hides nothing.
    patience
        Seconds to wait for a party without which a run cannot begin or end.
    """

    coordinator_sees: Literal["nothing", "weights", "papers"] = "nothing"
    hidden: tuple[int, ...] = (64,)
    method: Literal["prox", "avg"] = "prox"
    mu1: float = 0.1
    mu2: float = 0.1
    rounds: int = 32
    steps: int = 32
    batch: int = 32
    rate: float = 0.05
    decay: float = 1.0
    decay_every: int = 0
    begin: Literal["server", "own"] = "server"
    start: Literal["common", "own"] = "common"
    weigh: Literal["samples", "parties"] = "samples"
    matching: Matching = Matching()
    test_share: float = 0.0
    evaluate_every: int = 1
    participation: str | float | dict[str, object] = "everyone"
    cipher: Literal["pad", "plain"] = "pad"
    patience: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.coordinator_sees != "weights":
            raise ConfigError(
                "a neural run lets the coordinator see the parties' weights, which it must match, "
                f"but coordinator_sees is '{self.coordinator_sees}'; set coordinator_sees = "
                "'weights' if that is agreed"
            )
        if not self.hidden or len(self.hidden) > _MOST_LAYERS:
            raise ConfigError(
                f"hidden lists {len(self.hidden)} layers; give 1 to {_MOST_LAYERS}, such as [64]"
            )
        if not all(1 <= width <= _WIDEST for width in self.hidden):
            raise ConfigError(f"hidden is {list(self.hidden)}; give widths from 1 to {_WIDEST}")
        if any(a * b > _MOST_WEIGHTS for a, b in pairwise(self.hidden)):
            raise ConfigError(
                f"hidden is {list(self.hidden)}, which is too large; lower the widths"
            )
        for name, least in (("rounds", 1), ("steps", 1), ("batch", 0), ("evaluate_every", 1)):
            if not least <= getattr(self, name) <= _MOST:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}; give a whole number from {least} to {_MOST}"
                )
        for name in ("mu1", "mu2", "patience", "decay_every"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name):g}; give 0 or more")
        for name in ("rate", "decay"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name):g}; give a number above 0")
        if not 0 <= self.test_share < 1:
            raise ConfigError(f"test_share is {self.test_share:g}; give a share below 1")
        self._check_steps()

    def _check_steps(self) -> None:
        """(1 − ημ) must not throw the weights over the server's: beyond 2 they diverge."""
        if self.method == "prox" and self.rate * max(self.mu1, self.mu2) >= 2:
            raise ConfigError(
                f"rate × mu is {self.rate * max(self.mu1, self.mu2):g}, with which local steps "
                "diverge; let rate be well below 1/mu"
            )

    def rate_at(self, turn: int) -> float:
        """The learning rate of a round, counted from 1."""
        falls = (turn - 1) // self.decay_every if self.decay_every else 0
        return float(self.rate * self.decay**falls)

    @property
    def pulls(self) -> tuple[float, float]:
        """μ1 and μ2 as local steps use them."""
        return (self.mu1, self.mu2) if self.method == "prox" else (0.0, 0.0)


class NeuralSettings(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a run.

    Attributes
    ----------
    blocks
        All blocks, in the order of the server's model.
    """

    blocks: dict[str, Block]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ConfigError("a neural run needs blocks; describe at least one in [neural.blocks]")

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return msgspec.json.decode(text, type=prepared(cls))
        except msgspec.MsgspecError as error:
            raise ProtocolError(
                f"the settings of a neural run cannot be read ({error}); use the same version of "
                "Weft everywhere"
            ) from None
