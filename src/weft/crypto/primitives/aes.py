"""AES-256 on single blocks inside compiled loops.

PadLinks of thousands of small cohorts are computed in the same loop that adds them, block by block:
a call of a library per cohort would cost a hundred times the cipher. On processors with AES
instructions a block takes a few nanoseconds; elsewhere a table-driven version gives the same bits.
Tests hold both against the `cryptography` library.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

ROUNDS = 14


def _substitution() -> NDArray[np.uint8]:
    """The S-box: inverses in GF(2^8), then an affine map."""
    box = np.zeros(256, np.uint8)
    p = q = 1
    while True:
        p = p ^ (p << 1) & 0xFF ^ (0x1B if p & 0x80 else 0)
        for shift in (1, 2, 4):
            q ^= q << shift
        q &= 0xFF
        q ^= 0x09 if q & 0x80 else 0
        turned = [(q << s | q >> (8 - s)) & 0xFF for s in range(5)]
        box[p] = turned[0] ^ turned[1] ^ turned[2] ^ turned[3] ^ turned[4] ^ 0x63
        if p == 1:
            break
    box[0] = 0x63
    return box


_BOX = _substitution()


def expand_key(key: bytes) -> Keys:
    """The 15 round keys of a 32-byte key, two words each (FIPS 197)."""
    if len(key) != 32:
        raise ValueError(f"AES-256 takes a key of 32 bytes, not {len(key)}")
    words = [list(key[4 * i : 4 * i + 4]) for i in range(8)]
    constant = 1
    for i in range(8, 4 * (ROUNDS + 1)):
        last = words[i - 1]
        if i % 8 == 0:
            last = [int(_BOX[b]) for b in last[1:] + last[:1]]
            last[0] ^= constant
            constant = constant << 1 ^ (0x11B if constant & 0x80 else 0)
        elif i % 8 == 4:
            last = [int(_BOX[b]) for b in last]
        words.append([a ^ b for a, b in zip(words[i - 8], last, strict=True)])
    flat = bytes(byte for word in words for byte in word)
    return np.frombuffer(flat, np.uint64).reshape(ROUNDS + 1, 2).copy()


@intrinsic
def _hardware(_: Any, low: Any, high: Any, keys: Any) -> Any:
    """A block through the processor's AES instructions."""
    pair: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(64), 2)
        index = ir.IntType(32)
        array = context.make_array(signature.args[2])(context, builder, arguments[2])
        table = builder.bitcast(array.data, vector.as_pointer())

        def instruction(name: str) -> Any:
            known = builder.module.globals.get(name)
            return known or ir.Function(
                builder.module, ir.FunctionType(vector, [vector, vector]), name
            )

        def round_key(i: int) -> Any:
            key = builder.load(builder.gep(table, [ir.Constant(ir.IntType(64), i)]))
            key.align = 8
            return key

        block = ir.Constant(vector, ir.Undefined)
        for i in range(2):
            block = builder.insert_element(block, arguments[i], ir.Constant(index, i))
        block = builder.xor(block, round_key(0))
        middle = instruction("llvm.x86.aesni.aesenc")
        for i in range(1, ROUNDS):
            block = builder.call(middle, [block, round_key(i)])
        last = instruction("llvm.x86.aesni.aesenclast")
        block = builder.call(last, [block, round_key(ROUNDS)])
        halves = [builder.extract_element(block, ir.Constant(index, i)) for i in range(2)]
        return context.make_tuple(builder, pair, halves)

    return pair(types.uint64, types.uint64, keys), generate


@numba.njit(cache=True)
def hardware_block(low: Any, high: Any, keys: Any) -> Any:
    """AES-256 of the block (low, high), by the processor."""
    return _hardware(low, high, keys)  # type: ignore[call-arg]


@numba.njit(cache=True)
def software_block(low: Any, high: Any, keys: Any) -> Any:
    """AES-256 of the block (low, high), by tables."""
    state = np.empty(16, np.uint8)
    moved = np.empty(16, np.uint8)
    _unpack(low ^ keys[0, 0], high ^ keys[0, 1], state)
    for round_ in range(1, 15):
        # SubBytes and ShiftRows: byte (row, column) comes from (row, column + row).
        for column in range(4):
            for row in range(4):
                moved[4 * column + row] = _BOX[state[4 * ((column + row) & 3) + row]]
        if round_ < 14:
            _mix(moved, state)
        else:
            # A loop: over an assignment of slices the compiler takes seconds.
            for i in range(16):
                state[i] = moved[i]
        low, high = _packed(state)
        _unpack(low ^ keys[round_, 0], high ^ keys[round_, 1], state)
    return _packed(state)


@numba.njit(cache=True)
def _mix(source: Any, target: Any) -> None:
    """MixColumns."""
    for column in range(0, 16, 4):
        every = np.uint8(0)
        for row in range(4):
            every ^= source[column + row]
        for row in range(4):
            this = source[column + row]
            pair = np.int64(this ^ source[column + ((row + 1) & 3)])
            doubled = np.uint8(((pair << 1) ^ (0x1B * (pair >> 7))) & 0xFF)
            target[column + row] = this ^ every ^ doubled


@numba.njit(cache=True)
def _unpack(low: Any, high: Any, state: Any) -> None:
    for i in range(8):
        state[i] = np.uint8((low >> np.uint64(8 * i)) & np.uint64(255))
        state[8 + i] = np.uint8((high >> np.uint64(8 * i)) & np.uint64(255))


@numba.njit(cache=True)
def _packed(state: Any) -> Any:
    low = high = np.uint64(0)
    for i in range(8):
        low |= np.uint64(state[i]) << np.uint64(8 * i)
        high |= np.uint64(state[8 + i]) << np.uint64(8 * i)
    return low, high


def _has_instructions() -> bool:
    host = llvmlite.binding.get_process_triple()
    return host.startswith("x86_64") and bool(llvmlite.binding.get_host_cpu_features().get("aes"))


#: AES-256 of the block (low, high) under expanded keys: the two words of the result.
encrypt_block = hardware_block if _has_instructions() else software_block
