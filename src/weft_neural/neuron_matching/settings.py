"""How classifiers are matched."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from weft.errors import ConfigError


class Matching(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of Algorithm 3 of the 2024 text.

    Attributes
    ----------
    cost
        What it costs to match neuron j of a party with row i of the server, (20) of the text, over
        the input columns that both know. ``weighted``: the exact rise of Σ_m p_m ‖w_m − Πw_0Πᵀ‖².
        ``squared``: ‖x_j − mean_i‖² with the mean of the others, as the text puts it; with unequal
        weights it may make that sum rise. ``pfnm``: the MAP costs of Yurochkin et al. (2019).
    penalty
        What a new row costs, in the unit of ``cost``. ``auto`` takes, layer by layer, the mean of
        2p‖x‖² over all neurons x (of 2‖x‖² for ``squared``): about what it costs to share a row
        with a neuron that has nothing to do with it. A row that one party has for itself is
        averaged with nobody's and takes part in all that the server computes: where such rows
        opened easily, they grew and ruined the server's model. ``pfnm`` has costs of its own.
    most
        A hidden layer of the server has at most so many times the rows of the widest party's, None
        for no bound. By default twice: parties that see half of the classes each need more neurons
        together than the widest has, but parties that share nothing would otherwise bring the sum
        of their widths, and time grows with rows × widths.
    sweeps
        How often every party is taken out and matched again, in random order. The text's P counts
        single parties: it is ``sweeps`` times the number of parties. Sweeps end early when one
        changes nothing.
    fixed
        No matching: neuron j of every party is row j, and all have the same widths.
    sigma, sigma0, gamma
        Of ``pfnm``: standard deviation of a neuron around its row for a party of average weight, of
        rows around 0, and the mass of the process, which brings new rows.
    """

    cost: Literal["weighted", "squared", "pfnm"] = "weighted"
    penalty: float | Literal["auto"] = "auto"
    most: float | None = 2.0
    sweeps: int = 1
    fixed: bool = False
    sigma: float = 1.0
    sigma0: float = 1.0
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if self.penalty != "auto" and not 0 <= self.penalty < math.inf:
            raise ConfigError(f'penalty is {self.penalty:g}; give at least 0, or "auto"')
        if self.most is not None and not 1 <= self.most < math.inf:
            raise ConfigError(
                f"most is {self.most:g}; give at least 1, since the server needs a row for every "
                "neuron of the widest party"
            )
        if self.sweeps < 0:
            raise ConfigError(f"sweeps is {self.sweeps}; give at least 0")
        for name in ("sigma", "sigma0", "gamma"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value:g}; give a number above 0")
