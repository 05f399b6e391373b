"""A sum to which parties come one after the other: each puts its values in once."""

from __future__ import annotations

from unittest.mock import create_autospec

import numpy as np
import pytest

from weft.crypto import Cipher
from weft.errors import ProtocolError
from weft.sums.party_contribution import Gathering

VALUES = np.array([[0.25], [-0.5]])


@pytest.fixture
def cipher():
    """A cipher that only says what it is told to say."""
    cipher = create_autospec(Cipher, instance=True)
    cipher.name, cipher.request, cipher.sum_counter = "pad", 1, None
    cipher.repeats.return_value = False
    return cipher


def sent(cipher):
    return cipher.contribute.call_args.args[0]


def test_whoever_is_asked_again_puts_nothing_in(cipher):
    gathering = Gathering("v", 2, 1.0, cipher)
    gathering.put_in(3, VALUES, None)
    assert sent(cipher).values.ravel().tolist() != [0, 0]
    assert sent(cipher).last == 0
    cipher.repeats.return_value = True
    gathering.put_in(3, VALUES, None)
    assert sent(cipher).values.ravel().tolist() == [0, 0]
    assert sent(cipher).last == 1


def test_nobody_has_put_anything_into_a_new_sum(cipher):
    """Told that it has, a party would leave a request without its values, or with two sums."""
    gathering = Gathering("v", 2, 1.0, cipher)
    cipher.repeats.return_value = True
    with pytest.raises(ProtocolError, match="has contributed to a new sum"):
        gathering.put_in(3, VALUES, None)
    cipher.repeats.return_value = False
    gathering.put_in(3, VALUES, None)
    cipher.repeats.return_value = True
    with pytest.raises(ProtocolError, match="has contributed to a new sum"):
        gathering.put_in(4, VALUES, None)
    assert cipher.contribute.call_count == 1
