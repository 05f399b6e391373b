"""Which pads a contribution takes off, by what a party knows of its place among the others."""

from __future__ import annotations

import numpy as np
import pytest

from weft.crypto.ciphers.block_format import SIGN, pad_id_of
from weft.crypto.ciphers.cipher_arguments_and_results import check_older, newest_in
from weft.crypto.ciphers.contribution_masks import carried_by
from weft.crypto.pads.cohort_mask_neighbours import MaskRing, RingPlace
from weft.errors import ProtocolError


def place(*before, again=False):
    """A party's place that leads where nobody comes before it."""
    none = np.zeros((2, len(before), 2), np.uint64), np.zeros((2, len(before)), np.int8)
    return RingPlace(np.ones(3, bool), again, MaskRing(0, *none), np.array(before), b"")


def linked(where, told, *, base=64, last=0):
    marks = np.array(told, np.uint64)
    return carried_by(where, marks, base, marks, last).tolist()


def test_who_leads_takes_off_what_is_under_the_total_others_what_comes_before_them():
    assert linked(place(-1, 2, -1), [7, 7, 0]) == [7, 66, 0]


def test_who_leads_takes_off_nothing_that_is_not_older_than_the_request():
    for newest in (64, 65):
        with pytest.raises(ProtocolError, match="taken off that is not older than itself"):
            linked(place(-1), [newest])
    # Where it does not lead, the request says nothing that counts.
    assert linked(place(1), [65]) == [65]


def test_a_sum_is_gone_on_from_only_with_what_this_party_put_in():
    assert linked(place(-1, again=True), [9], last=9) == [9]
    for where, last in ((place(-1, again=True), 10), (place(-1, again=True), 0), (place(-1), 9)):
        with pytest.raises(ProtocolError, match="does not go on from the sum"):
            linked(where, [9], last=last)


def test_pads_that_a_request_lists_together_are_in_its_list_and_older():
    """A mark with the sign names an entry of the list; one behind its end names nothing."""
    lists = [(3, 4), (5, 2)]
    check_older(np.array([1, 6, SIGN, SIGN | 1], np.uint64), lists, 7, "v")
    with pytest.raises(ProtocolError, match="not older than this contribution"):
        check_older(np.array([1, SIGN | 2], np.uint64), lists, 7, "v")
    with pytest.raises(ProtocolError, match="not older than this contribution"):
        check_older(np.array([1, SIGN], np.uint64), lists, 5, "v")
    with pytest.raises(ProtocolError, match="not older than this contribution"):
        check_older(np.array([7, SIGN], np.uint64), lists, 7, "v")


def test_the_newest_of_several_pads_is_told_of_lists_that_a_request_has_and_of_no_other():
    """The second goes on from the first: the next request has put one pad on and taken one off."""
    first, on, off = (pad_id_of(0, number, party) for number, party in ((1, 0), (2, 1), (2, 2)))
    lists, several = [(first,), (first, on, int(SIGN) | off)], int(SIGN)
    assert [newest_in(lists, several | entry, "v") for entry in (0, 1)] == [first, off]
    for behind in (2, 3):
        with pytest.raises(ProtocolError, match="pads under the feature sums that it does not"):
            newest_in(lists, several | behind, "v")
