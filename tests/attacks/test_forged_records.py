"""Which pads lie under a total is the coordinator's word: what it makes up must not open.

Tags are linear, so that a total of nothing, without any pad, is a total that fits its tag, as is
one times two with its pads twice. A coordinator that replaces the inner products of all samples
but one by nothing reads that sample's margin in the total of losses.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import by_columns, run, table_of
from without_rings import NEWEST

from weft.crypto.ciphers.block_format import Carried, pack_block, read_block, word_block
from weft.crypto.pads.pad_streams import Streams
from weft.crypto.primitives.scalars_modulo_2_144 import floats_of, unpacked
from weft.errors import WeftError
from weft.guards import Terms
from weft.solvers.run_settings import Settings
from weft.sums.party_contribution import Wire

SAMPLES, SLOT = 120, 7
SETTINGS = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=1e-1, iterations=4)


def forged(packed, times):
    """A block in which nothing is left but one slot, times a whole number."""
    block = read_block(packed, "z")
    sent, carried = word_block(block, "z"), block.carried
    pads = carried.pad_ids if carried.lengths is None else np.repeat(*carried[::2][::-1])
    words, tags = np.zeros_like(sent.words), np.zeros_like(sent.tags)
    words[SLOT] = sent.words[SLOT] * np.uint64(times)
    tags[SLOT] = int(sent.tags[SLOT]) * times % ((1 << 61) - 1)
    counts = np.zeros(block.slots, np.uint32)
    counts[SLOT] = times
    pad = int(pads[0 if carried.lengths is None else SLOT])
    made_up = Carried(np.ones(block.slots, np.uint32), counts, np.array([pad] * times, np.uint64))
    body = words.tobytes() + tags.tobytes()
    shape = (block.slots, block.width)
    return pack_block(block.cipher, block.kind, block.key, block.pad_id, *shape, body, made_up)


def attack(times):
    """A run whose last inner products are forged; what comes back as losses, party by party."""
    told = {}

    def around(name, handler):
        def answer(phase, message):
            if phase == "subspace.close" and message.get("z") is not None:
                message = {**message, "z": forged(message["z"], times)}
            reply = handler(phase, message)
            if phase == "subspace.close":
                told[name] = reply["losses"]
            return reply

        return answer

    table = table_of("breast_cancer", SAMPLES)
    run(by_columns(table, 3), SETTINGS, Terms(), around=around)
    return told


@pytest.mark.parametrize("times", [1, 3])
def test_a_record_that_is_believed_gives_the_margin_of_one_sample(times, monkeypatch, record):
    show = Streams.show

    def believe(streams, kind, slots, words, tags, carried, limits, where, **how):
        return show(streams, kind, slots, words, tags, carried, (0, NEWEST), where, **how)

    monkeypatch.setattr(Streams, "show", believe)
    never = property(lambda sum_: False, lambda sum_, value: None)
    monkeypatch.setattr(Wire, "_whole", never, raising=False)
    told = attack(times)
    limbs = unpacked(b"".join(told.values())).reshape(len(told), -1, 3).sum(axis=0)
    rest = floats_of(limbs)[0] * SAMPLES - (SAMPLES - 1) * np.log(2)
    # One sample's loss, of a margin that is no rounding.
    assert 0 < rest < 20
    assert abs(np.log(np.expm1(rest))) > 1e-3
    record("33", "unguarded", f"one sample's loss, margin {-np.log(np.expm1(rest)) / times:.3g}")


@pytest.mark.parametrize("times", [1, 3])
def test_a_record_that_was_made_up_does_not_open(times, record):
    with pytest.raises(WeftError, match=r"older than this party|fails its check"):
        attack(times)
    record("33", "guarded", "refused")
