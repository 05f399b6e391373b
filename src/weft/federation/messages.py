"""Messages of a run around its solver: announcements, the start, the model, joint prediction."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints, Slots
from weft.crypto.key_and_seed_messages import RunKeys
from weft.matching.authenticated_class_list import AgreedClasses, Classes
from weft.protocol.declared_message_fields import Message, Nothing, Part
from weft.protocol.field_visibility import (
    block,
    keys,
    numbers,
    record,
    scalars,
    sealed,
    texts,
)
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import Boxes, Everyone, PadLinks, SumRequest
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

Names = NDArray[np.str_]

_AGREED = "on which terms it takes part, and who gets the model"

# ── announcements ─────────────────────────────────────────────────────────────────────────


class AnnounceRequest(Message):
    """Opens a run: asks on which terms a party takes part."""

    run: Annotated[bytes, keys("random name of the run")]
    parties: Annotated[int, record("how many take part")]
    classes: Annotated[bool, record("whether labels are classes")] = False
    shares: Annotated[bool, record("whether training is on shares alone")] = False


class AnnounceReply(Message):
    keys: RunKeys
    terms: Annotated[str, texts(_AGREED)]
    declares: Annotated[bool, record("whether it declares columns")]
    roster: Annotated[str | None, texts(_AGREED)] = None
    recipients: Annotated[Names | None, texts(_AGREED, "names")] = None
    holders: Annotated[Names | None, texts(_AGREED, "names")] = None
    solvers: Annotated[Names | None, texts(_AGREED, "names")] = None


class ListRequest(Message):
    """Asks a party for its classes; ``company`` lists all, unless the cipher hides nothing."""

    company: Everyone | None = None


class ListReply(Message):
    classes: Annotated[bytes, sealed("its classes, for the other parties alone")]


class ClassesRequest(Message):
    """Brings the lists of all parties, mixed; asks one of them to join the lists.

    ``named`` has the classes of the config, of which all must be; else the lists must not look like
    one in several words, unless that is ``confirmed``.
    """

    boxes: Boxes
    named: Annotated[Classes | None, texts("class names of the config", "classes")] = None
    confirmed: Annotated[bool, record("whether lists in other words are meant to differ")] = False


class ClassesReply(Message):
    classes: AgreedClasses


ANNOUNCE = Phase("announce", AnnounceRequest, AnnounceReply)
LIST_CLASSES = Phase("classes.list", ListRequest, ListReply)
JOIN_CLASSES = Phase("classes", ClassesRequest, ClassesReply)

# ── what is too rare to be trained on ─────────────────────────────────────────────────────

_LEFT_OUT = "which samples have a rare class, for holders without labels"


class RareRequest(SumRequest):
    """Asks which samples have a class that too few of their group have."""

    send: Annotated[Flags, record("for which of its cohorts it tells others", "cohorts")]
    alpha_pads: PadLinks | None = None


class RareReply(Message):
    kept: Annotated[bytes, scalars("how many of the samples that it counts stay")]
    confirmed: Annotated[bytes | None, scalars("confirms them; none under cipher plain")] = None
    alpha: Annotated[bytes | None, block(_LEFT_OUT)] = None
    alpha_slots: Annotated[Slots | None, record("which of its slots these are", "slots")] = None


class LeaveRequest(SumRequest):
    """Tells how many samples stay, and holders without labels which do not."""

    samples: Annotated[int, numbers("how many samples are trained on")]
    confirmed: Annotated[bytes, keys("how all parties confirm that number")] = b""
    alpha: Annotated[bytes | None, block(_LEFT_OUT)] = None
    alpha_slots: Annotated[Slots | None, record("which of its slots these are", "slots")] = None


class LeaveReply(Message):
    cells: Annotated[bytes, scalars("how many of its cells it leaves out")]


RARE = Phase("rare.classes", RareRequest, RareReply)
LEAVE_OUT = Phase("rare.leave", LeaveRequest, LeaveReply)

# ── the start of a solver ─────────────────────────────────────────────────────────────────


class CountRequest(SumRequest):
    """Asks how many samples each class has."""


class CountReply(Message):
    counts: Annotated[bytes, scalars("how many of its samples each class has, by weight")]


COUNT_CLASSES = Phase("weigh.classes", CountRequest, CountReply)


class StartRequest(Message):
    """Starts a solver.

    Attributes
    ----------
    unit, label
        Powers of two above every party's part of every ‖x_i‖², and above every |label|.
    offset, weight
        The same above every |offset| and every weight; 0 and 1 where there are none.
    smallest_lam
        The smallest λ of the run, which the fixed point of all sums is chosen from.
    """

    settings: Annotated[str, texts("settings of the run")]
    unit: Annotated[float, numbers("common unit, a power of two")]
    label: Annotated[float, numbers("common unit, a power of two")]
    smallest_lam: Annotated[float, numbers("the smallest λ of the run")]
    offset: Annotated[float, numbers("power of two above every |offset|")]
    weight: Annotated[float, numbers("power of two above every weight")]


START = Phase("start", StartRequest, Nothing)

# ── the model ─────────────────────────────────────────────────────────────────────────────

_KEEP = record("which model this is about")
_SIGNED = keys("hash of all that it was asked and said, signed")


class ReleaseRequest(Message):
    """Asks a party for its part of the model, sealed to its readers.

    Attributes
    ----------
    model
        Number of the certified point; None: the newest.
    everything
        Whether a party is gone, so that all answer for all their features.
    suboptimality
        By how much P(w) is above the least at most, over all classes together, as the certificate
        proves; None: nothing is proved.
    """

    model: Annotated[int | None, _KEEP] = None
    everything: Annotated[bool, _KEEP] = False
    suboptimality: Annotated[float | None, numbers("how far P(w) is above the least")] = None


class ReleaseReply(Message):
    """A party's part of the model, and what the run has exposed of its samples.

    Attributes
    ----------
    exposed
        Whether another party got as many sums about one of them as it lacks columns of it; None:
        sums in the clear, which nobody counts.
    transcript, signature
        The hash of all that it was asked and said before this
        (`protocol/signed_transcript_hash.py`), and its signature; None: it keeps none, in
        one process without a recording.
    unheard
        Hashes of requests that it worked on and whose reply the coordinator says it never got, one
        after the other; they are in the hash too. None: there are none.
    """

    readers: Annotated[Names, texts("who gets the model", "readers")]
    boxes: Boxes
    exposed: Annotated[
        bool | None, record("whether others can work out columns of its samples")
    ] = None
    transcript: Annotated[bytes | None, _SIGNED] = None
    signature: Annotated[bytes | None, _SIGNED] = None
    unheard: Annotated[bytes | None, _SIGNED] = None


class ModelRequest(Message):
    """Brings a reader of the model all of its parts."""

    head: Annotated[str, texts("all of the model but its weights")]
    writers: Annotated[Names, texts("whose parts these are", "writers")]
    boxes: Boxes
    everything: Annotated[bool, _KEEP] = False


class WeightShares(Part):
    """A party's shares of all weights, where no party knows those of its own features.

    The shares of all parties add up to the weights, modulo 2^64 in units of 2^−``bits``.
    """

    words: Annotated[NDArray[np.uint64], numbers("shares of all weights", "classes", "columns")]
    columns: Annotated[Ints, record("which columns its features are", "features")]
    bits: Annotated[int, record("binary digits of weights")]


class MatrixShares(Part):
    """A party's shares of matrices over all columns, modulo 2^64 in units of 2^−``bits``.

    ``errors`` say by how much an entry of each matrix may be off.
    """

    words: Annotated[
        NDArray[np.uint64], numbers("shares of matrices", "matrices", "columns", "columns")
    ]
    bits: Annotated[int, record("binary digits of entries")]
    errors: Annotated[Floats, numbers("how far entries may be off", "matrices")]


class GradientShares(Part):
    """A party's shares of Xᵀ l'(z) for every class, modulo 2^64 in units of 2^−``bits``.

    ``errors`` say how far each gradient of the mean loss may be off, in length.
    """

    words: Annotated[NDArray[np.uint64], numbers("shares of gradients", "gradients", "columns")]
    bits: Annotated[int, record("binary digits of entries")]
    errors: Annotated[Floats, numbers("how far they may be off; −1: words are noise", "gradients")]


class SecondMomentShares(Part):
    """A party's shares of XᵀX, and of Xᵀ diag(l''(z)) X and Xᵀ l'(z) for every class.

    ``rest`` is to be added to the Hessian: l''(z) has more digits than one word has room for. Apart
    both have noise, which their sum has not.
    ``labels`` has one entry, −½ Σy of two classes over the constant column; of counts two, −Σy and
    Σ log y! with noise. ``pearson`` has one, Σ(y/μ − 1)² of a gamma model with noise.
    """

    samples: Annotated[int, numbers("how many samples were trained on")]
    weighed: Annotated[bool, record("whether samples have weights")]
    longest_row: Annotated[float, numbers("power of two above every ‖x‖², of all parties")]
    gram: MatrixShares | None = None
    hessian: MatrixShares | None = None
    rest: MatrixShares | None = None
    gradient: GradientShares | None = None
    labels: GradientShares | None = None
    pearson: GradientShares | None = None


class StatisticsShare(Part):
    """A party's sums for standard errors, under masks that cancel in the total of all parties.

    Where a sum has three words: see `weft.federation.release.masked_standard_error_sums`.

    Attributes
    ----------
    refusal
        Why it has no part in them at this model, in a sentence; then there are no words.
    """

    words: Annotated[NDArray[np.uint64], numbers("sums under masks", "limbs", "sums")]
    columns: Annotated[Ints, record("which columns its features are", "features")]
    width: Annotated[int, record("how many columns matrices have, with a place for every site")]
    samples: Annotated[int, numbers("how many samples were trained on")]
    longest_row: Annotated[float, numbers("power of two above every ‖x‖², of all parties")]
    refusal: Annotated[str, texts("why it tells nothing")] = ""


class ModelSlice(Message):
    """One party's part of the model: what it seals in a box. Weights are in scaled units."""

    names: Annotated[Names, texts("names of its features", "features")]
    weights: Annotated[Floats, numbers("weights of its features", "features", "classes")]
    shift: Annotated[Floats, numbers("scaling of its features", "features")]
    factor: Annotated[Floats, numbers("scaling of its features", "features")]
    constant: Annotated[Flags, record("which is the constant column", "features")]
    row_factor: Annotated[float, numbers("factor of all rows")]
    missing: Annotated[str, texts("what becomes of blank cells")]
    overlap: Annotated[str, texts("what counts for a cell at several holders")]
    bias_value: Annotated[float | None, numbers("value of the constant column")] = None
    shares: WeightShares | None = None
    moments: SecondMomentShares | None = None
    statistics: StatisticsShare | None = None


RELEASE = Phase("release", ReleaseRequest, ReleaseReply)
TAKE_MODEL = Phase("release.model", ModelRequest, Nothing)

# ── joint prediction ──────────────────────────────────────────────────────────────────────


_ASKER = record("number of the party that alone reads scores; none: every holder", alike=True)


class PartialScoresRequest(SumRequest):
    """Asks for a party's part of the scores.

    ``asker`` and ``model`` are the same for all: parts of parties that were told different ones
    do not add up to anything that can be read.
    """

    unit: Annotated[float, numbers("common unit, a power of two")]
    model: Annotated[bytes, record("hash of the model", alike=True)]
    asker: Annotated[int | None, _ASKER] = None
    z_pads: PadLinks | None = None


class PartialScoresReply(Message):
    z: Annotated[bytes | None, block("its part of the scores")] = None


class ScoresRequest(SumRequest):
    z: Annotated[bytes | None, block("scores of its samples")] = None


class ScoresReply(Message):
    """``scores`` is there from a party that asked for scores, for whoever has its keys."""

    scores: Annotated[bytes | None, sealed("ids and scores, to the party that asked")] = None


class JointScores(Message):
    """What the party that asked for scores seals to itself."""

    ids: Annotated[Names, texts("ids of its samples", "samples")]
    scores: Annotated[Floats, numbers("their scores", "samples", "classes")]


JOINT_SIZE = Phase("joint.size", DigitRequest, DigitReply)
JOINT_PARTIAL = Phase("joint.partial", PartialScoresRequest, PartialScoresReply)
JOINT_SCORES = Phase("joint.scores", ScoresRequest, ScoresReply)
