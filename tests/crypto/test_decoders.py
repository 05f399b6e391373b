"""Whatever bytes arrive, decoders give a value or one of Weft's own errors, and stay small.

``fuzz/`` has the same decoders for longer searches guided by coverage.
"""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from covering import examples
from weft.crypto.ciphers.bfv_by_seal import BfvSecret, BfvTotals
from weft.crypto.ciphers.block_format import (
    CIPHER_CODES,
    KIND_CODES,
    Carried,
    Knots,
    pack_block,
    read_block,
    read_knots,
    words_of,
)
from weft.crypto.ciphers.cipher_arguments_and_results import check_older, linked
from weft.crypto.ciphers.paillier_scheme import PaillierSecret, PaillierTotals
from weft.crypto.keys import KeysError, load_keys, new_keys, read_public
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.errors import WeftError
from weft.protocol.message_bytes import pack, unpack
from weft.sums.table_scaling_and_certificate_messages import ROW_NORMS

#: Other work on the same machine must not fail a test.
RELAXED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
QUICK = examples(200, deadline=None, suppress_health_check=RELAXED)
SLOW = examples(25, deadline=None, suppress_health_check=RELAXED)
SIGN = 1 << 63


@contextmanager
def at_most(megabytes):
    """Whatever happens inside takes no more memory than this, and fails with Weft's errors only."""
    tracemalloc.start()
    try:
        with suppress(WeftError):
            yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1e6
    finally:
        tracemalloc.stop()


@st.composite
def damaged(draw, whole):
    """Bytes that were whole: changed, cut, repeated, or with a number in them made large."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        what = draw(st.integers(0, 4))
        if what == 0 and content:
            content[at] ^= draw(st.integers(1, 255))
        elif what == 1:
            del content[at:]
        elif what == 2:
            content[at:at] = draw(st.binary(min_size=1, max_size=9))
        elif what == 3:
            content[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80"]))
        else:
            content += content[at : at + 40]
    return bytes(content)


# ── blocks ────────────────────────────────────────────────────────────────────────────────────


@st.composite
def blocks(draw):
    """Blocks as either side makes them."""
    slots, width = draw(st.integers(0, 6)), draw(st.integers(1, 3))
    runs = draw(st.integers(0, 4))
    lengths = draw(st.one_of(st.none(), hnp.arrays(np.uint32, runs, elements=st.integers(0, 9))))
    counts = None
    labels = draw(st.integers(0, 5))
    if lengths is not None:
        labels = runs
        if draw(st.booleans()):
            counts = draw(hnp.arrays(np.uint32, runs, elements=st.integers(0, 3)))
            labels = int(counts.sum())
    carried = Carried(lengths, counts, draw(hnp.arrays(np.uint64, labels)))
    return pack_block(
        draw(st.sampled_from(list(CIPHER_CODES))),
        draw(st.sampled_from(list(KIND_CODES))),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        slots,
        width,
        draw(st.binary(max_size=8 * slots * width)),
        carried,
    ), carried


@QUICK
@given(blocks())
def test_blocks_come_back_as_they_were_packed(made):
    packed, carried = made
    block = read_block(packed, "a block")
    again = block.carried
    for one, other in zip(carried, again, strict=True):
        assert (one is None) == (other is None)
        assert one is None or one.tolist() == other.tolist()
    assert pack_block(
        block.cipher, block.kind, block.key, block.pad_id, block.slots, block.width,
        bytes(block.body), again,
    ) == packed  # fmt: skip


@QUICK
@given(st.data())
def test_damaged_blocks_are_read_or_refused(data):
    packed, _ = data.draw(blocks())
    read(data.draw(damaged(packed)), data.draw(st.integers(0, 40)))


@QUICK
@given(
    st.one_of(st.binary(max_size=80), st.binary(max_size=60).map(lambda b: b"Wb\x01\x02\x01" + b))
)
def test_bytes_that_are_no_block_are_read_or_refused(packed):
    read(packed, 5)


@pytest.mark.parametrize(
    "wrong", [None, 3, 1.5, "Wb", bytearray(40), np.zeros(9, np.uint64), [], {}]
)
def test_what_is_no_byte_string_is_refused(wrong):
    with pytest.raises(WeftError, match="a block is no block"):
        read_block(wrong, "a block")


def read(packed, slots):
    """All that happens to a block before its words are used."""
    with at_most(1):
        block = read_block(packed, "a block")
        with suppress(WeftError):
            words_of(block, "a block")
        if slots:
            block.carried.per_slot(slots, np.zeros(slots, np.int32), "a block")


@pytest.mark.parametrize("flags", range(4))
@pytest.mark.parametrize(("runs", "labels"), [(2**32 - 1, 1), (1, 2**32 - 1), (2**32 - 1,) * 2])
def test_a_header_that_promises_billions_of_labels_costs_nothing(flags, runs, labels):
    head = struct.pack("<2sBBBBHIIIIQ", b"Wb", 1, 2, 1, flags, 1, 7, 2**32 - 1, runs, labels, 9)
    with at_most(0.1):
        read_block(head + bytes(1000), "a block")


def test_many_labels_of_one_slot_do_not_count_for_all_slots():
    slots = labels = 2000
    carried = Carried(
        np.array([1, slots - 1], np.uint32),
        np.array([labels, 0], np.uint32),
        np.ones(labels, np.uint64),
    )
    with at_most(1):
        carried.per_slot(slots, np.zeros(slots, np.int32), "a block")


# ── messages ──────────────────────────────────────────────────────────────────────────────────

MESSAGE = {
    "round": 7,
    "gamma": 1.0,
    "every": True,
    "name": "p1",
    "v": b"Wb" + bytes(30),
    "v.chain": np.arange(3, dtype=np.uint64),
    "send": np.array([True, False]),
    "classes": np.array(["a", "bc"]),
    "table": np.zeros((2, 3)),
}


@QUICK
@given(damaged(pack(MESSAGE)))
def test_damaged_messages_are_read_or_refused(packed):
    with at_most(1):
        assert isinstance(unpack(packed), dict)


@QUICK
@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.binary(max_size=9)
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
    )
)
def test_other_values_are_read_or_refused(value):
    for content in (value, {"x": value}, {"x": ("v", value)}, {"x": ("a", value)}):
        with at_most(1):
            assert isinstance(unpack(b"WEFT1" + msgspec.msgpack.encode(content)), dict)


DTYPES = st.one_of(
    st.sampled_from(["<i4", "<u8", ">u8", "|b1", "<U3", "O", "V8", "i4,i4", "m8[s]", "U", "<f2"]),
    st.text("<>|=iufbUOVmM?0123456789[](){}', :s", max_size=8).filter(
        lambda text: not set(text) & set("(),")
    ),
)


@QUICK
@given(
    DTYPES,
    st.lists(st.integers(-3, 2**64 - 1), max_size=3).filter(lambda shape: 0 not in shape),
    st.binary(max_size=24),
)
def test_other_arrays_are_read_or_refused(dtype, shape, content):
    packed = b"WEFT1" + msgspec.msgpack.encode({"x": ("a", (dtype, shape, content))})
    with at_most(1):
        assert isinstance(unpack(packed)["x"], np.ndarray)


@pytest.mark.parametrize("depth", [10, 10_000, 10**6])
def test_values_in_values_in_values_are_refused(depth):
    with pytest.raises(WeftError):
        unpack(b"WEFT1\x81\xa1x\x92\xa1v" + b"\x91" * depth + b"\xc0")


@pytest.mark.parametrize(
    "dtype",
    ["O", "V8", "i4,i4", "(2,)i4", "(2,", "(,)i4"],
)
def test_kinds_of_arrays_that_do_not_travel_are_refused(dtype):
    with pytest.raises(WeftError):
        unpack(b"WEFT1" + msgspec.msgpack.encode({"x": ("a", (dtype, (1,), bytes(8)))}))


def test_arrays_are_not_longer_than_their_bytes():
    packed = b"WEFT1" + msgspec.msgpack.encode({"x": ("a", ("<u8", (2**40, 0), b""))})
    with pytest.raises(WeftError):
        unpack(packed)


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb"])
def test_promises_of_four_billion_items_cost_nothing(head):
    for packed in (head, b"\x81\xa1x" + head, b"\x81\xa1x\x92\xa1v" + head):
        with at_most(0.1):
            unpack(b"WEFT1" + packed + b"\xff" * 4)


# ── chains and knots ──────────────────────────────────────────────────────────────────────────


@QUICK
@given(hnp.arrays(np.uint64, st.integers(0, 20)))
@example(np.array([2**64 - 1], np.uint64))
@example(np.array([2**63, 1, 2], np.uint64))
def test_tables_of_knots_hold_no_more_than_was_sent(flat):
    with at_most(1):
        table = read_knots(flat)
        assert sum(len(labels) for labels in table) + len(table) <= len(flat)


@QUICK
@given(st.lists(st.sets(st.integers(1, 2**63 - 1), max_size=4), max_size=6))
def test_knots_come_back_from_their_flat_form(sets):
    knots, again = Knots(), Knots()
    marks = [knots.mark(labels) for labels in sets]
    again.restore(knots.state())
    assert [again.pad_ids(mark) for mark in marks] == [tuple(sorted(labels)) for labels in sets]
    sent, flat = knots.rewrite(np.array(marks, np.uint64))
    table = [] if flat is None else read_knots(flat)
    for mark, labels in zip(sent.tolist(), sets, strict=True):
        found = table[mark & ~SIGN] if mark & SIGN else (mark,) if mark else ()
        assert set(found) == labels


ANYTHING = st.one_of(
    st.none(),
    st.integers(),
    st.binary(max_size=9),
    hnp.arrays(
        st.sampled_from([np.uint64, np.int64, np.float64, np.bool_, np.dtype("<U2")]),
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    ),
)


@QUICK
@given(ANYTHING, st.integers(0, 3))
def test_chains_are_read_or_refused(value, units):
    with suppress(WeftError):
        asked = ROW_NORMS.read_request({"round": 1, "unit": 1.0, "z_pads.chain": value})
        minus = linked(asked.z_pads.chain, "z", units)
        assert minus.dtype == np.uint64
        assert minus.shape == (units,)


@QUICK
@given(
    hnp.arrays(np.uint64, st.integers(0, 4)),
    st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple), max_size=3),
    st.integers(1, 2**63 - 1),
)
def test_labels_that_pass_are_older_and_listed(marks, knots, label):
    with suppress(WeftError):
        check_older(marks, knots, label, "z")
        assert all(part & ~SIGN < label for labels in knots for part in labels)
        assert all(mark < label for mark in marks.tolist() if not mark & SIGN)
        assert all(mark & ~SIGN <= max(0, len(knots) - 1) for mark in marks.tolist() if mark & SIGN)


# ── ciphertexts ───────────────────────────────────────────────────────────────────────────────


@cache
def lattice():
    secret = BfvSecret.new()
    totals = BfvTotals(2)
    totals.add(np.arange(2), secret.seal(np.ones((2, 4096), np.uint64)))
    return secret, secret.seal(np.ones((1, 4096), np.uint64)), totals.take(np.arange(1))


@SLOW
@given(st.booleans(), st.data())
def test_damaged_lattice_ciphertexts_are_opened_or_refused(fresh, data):
    secret, sealed, total = lattice()
    packed = data.draw(damaged(sealed if fresh else total))
    for chunks in (0, 1, 2):
        with suppress(WeftError):
            assert secret.open(packed, chunks).shape == (chunks, 4096)
        with suppress(WeftError):
            BfvTotals(2).add(np.arange(chunks), packed)


@SLOW
@given(st.binary(max_size=200), st.integers(0, 5))
def test_bytes_that_are_no_lattice_ciphertext_are_refused(packed, chunks):
    secret, *_ = lattice()
    with at_most(5):
        words = secret.open(packed, chunks)
        assert not words.any()
    with at_most(5):
        BfvTotals(5).add(np.arange(chunks), packed)


@cache
def factors():
    return PaillierSecret.new(512)


@SLOW
@given(st.data())
def test_damaged_paillier_ciphertexts_are_opened_or_refused(data):
    secret = factors()
    packed = data.draw(damaged(secret.seal(np.arange(2, dtype=np.uint64))))
    with suppress(WeftError):
        assert secret.open(packed, 2).shape == (2,)
    with suppress(WeftError):
        PaillierTotals(secret.public(), 2).add(np.arange(2), packed)


@SLOW
@given(st.one_of(st.binary(max_size=80), st.data()))
def test_damaged_public_keys_are_taken_or_refused(drawn):
    public = drawn if isinstance(drawn, bytes) else drawn.draw(damaged(factors().public()))
    with suppress(WeftError):
        PaillierTotals(public, 2).take(np.arange(2))


# ── keys ──────────────────────────────────────────────────────────────────────────────────────


@QUICK
@given(st.binary(max_size=140))
def test_identities_and_boxes_are_read_or_refused(content):
    mine = identity()
    for reader in (
        PublicIdentity.from_bytes,
        lambda b: Identity.from_private(Secret(b)),
        mine.open,
        lambda b: mine.public.verify(b"content", b),
        lambda b: PublicIdentity.from_bytes(b).seal(b"content"),
        lambda b: mine.shared_with(PublicIdentity.from_bytes(b)),
    ):
        with suppress(WeftError):
            reader(content)


@cache
def identity():
    return Identity.new()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    new_keys(path, ["north", "south"])
    return path


FILES = ("public.json", "north/identity.key", "north/run-*.box")


@examples(120, deadline=None, suppress_health_check=RELAXED)
@given(st.sampled_from(FILES), st.data())
def test_damaged_key_files_are_refused_with_one_sentence(folder, name, data):
    (path,) = folder.glob(name)
    whole, good = path.read_bytes(), load_keys(folder, "north")
    broken = data.draw(st.one_of(damaged(whole), st.binary(max_size=60)))
    try:
        path.write_bytes(broken)
        try:
            found = load_keys(folder, "north")
        except KeysError as error:
            sentence = str(error)
        else:
            # Only what means nothing can have changed: spaces, or bits that X25519 does not use.
            assert found.identity.public == good.identity.public
            assert found.run == good.run
            sentence = ""
        assert "\n" not in sentence
        with suppress(KeysError):
            read_public(folder)
    finally:
        path.write_bytes(whole)
    assert load_keys(folder, "north").run == load_keys(folder, "south").run


def test_keys_have_no_fields_that_are_not_looked_at(folder):
    """A new field of PartyKeys must be thought of above."""
    assert [f.name for f in fields(load_keys(folder, "north"))] == ["name", "identity", "run"]


@pytest.mark.parametrize("depth", [1000, 10**6])
def test_a_public_file_of_nested_lists_is_refused(folder, depth):
    path = folder / "public.json"
    whole = path.read_bytes()
    try:
        for content in (
            b"[" * depth,
            b'{"format":1,"run":' + b"[" * depth,
            b'{"x":' + b"[" * depth,
        ):
            path.write_bytes(content)
            with pytest.raises(KeysError):
                read_public(folder)
    finally:
        path.write_bytes(whole)
