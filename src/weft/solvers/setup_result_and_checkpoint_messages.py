"""Messages that every solver has: constants that setting up found, and checkpoints."""

from __future__ import annotations

from typing import Annotated

from weft.protocol.declared_message_fields import Message, Nothing, Part
from weft.protocol.field_visibility import numbers, record
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import IterationRequest

_STEP = numbers("constants of the step")


class Constants(Part):
    """What setting up found out, as far as a party's half must know it.

    Attributes
    ----------
    omega, share
        HyFDCA: a bound on the curvature, and a party's share of the samples.
    mu, upper, beta
        FedHybrid: the penalty, and bounds of its steps.
    sample_curvature, party_curvature
        The largest curvature of one sample's loss, and of one party's mean loss.
    """

    omega: Annotated[float | None, _STEP] = None
    share: Annotated[float | None, _STEP] = None
    mu: Annotated[float | None, _STEP] = None
    upper: Annotated[float | None, _STEP] = None
    beta: Annotated[float | None, _STEP] = None
    sample_curvature: Annotated[float | None, _STEP] = None
    party_curvature: Annotated[float | None, _STEP] = None


class SequencedReply(Message):
    """A reply that changes what both sides must agree on; the party numbers them."""

    sequence: Annotated[int, record("number of the reply", common=True)] = 0


class SaveRequest(Message):
    """Asks a party to save its state after an iteration."""

    iteration: Annotated[int, record("number of the iteration", common=True)]
    ack: Annotated[int, record("number of its last reply that arrived", common=True)]


class RestoreRequest(IterationRequest):
    """Asks a party to go back to what it saved, in a later epoch."""

    epoch: Annotated[int, record("number of the epoch", common=True)]
    constants: Constants | None = None


class ForgetRequest(Message):
    """Says that older checkpoints are not needed any more."""

    iteration: Annotated[int, record("number of the iteration", common=True)]


SAVE = Phase("checkpoint", SaveRequest, Nothing)
RESTORE = Phase("checkpoint.restore", RestoreRequest, Nothing)
FORGET = Phase("checkpoint.forget", ForgetRequest, Nothing)
