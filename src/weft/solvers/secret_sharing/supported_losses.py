"""Which losses can be trained on shares: every run asks, and loads none of what trains them."""

from __future__ import annotations

#: Losses whose slope is an exponential of the score, but for what labels add.
EXPONENTIAL_LOSSES = ("poisson", "gamma")
#: All losses whose slope can be computed on shares.
LOSSES = ("logistic", "squared", *EXPONENTIAL_LOSSES)
#: Those whose expected information weighs all samples alike: it is XᵀX.
ALIKE = ("squared", "gamma")
