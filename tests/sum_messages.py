"""A request for sums of every kind and its reply, for tests of sums without a solver.

Not a test itself.
"""

from __future__ import annotations

import numpy as np

from weft.protocol.declared_message_fields import Message
from weft.protocol.shared_fields import Attending, PadLinks, SumRequest


class SumsRequest(SumRequest):
    z_pads: PadLinks | None = None
    v_pads: PadLinks | None = None
    alpha_pads: PadLinks | None = None
    delta_pads: PadLinks | None = None
    attending: Attending = None


class SumsReply(Message):
    z: bytes | None = None
    z_slots: np.ndarray | None = None
    v: bytes | None = None
    v_slots: np.ndarray | None = None
    alpha: bytes | None = None
    alpha_slots: np.ndarray | None = None
    delta: bytes | None = None
    delta_slots: np.ndarray | None = None
    losses: bytes | None = None


def new_request(adder, parties):
    """The next request, to these parties."""
    round_ = adder.advance()
    return {party: SumsRequest(round=round_) for party in parties}
