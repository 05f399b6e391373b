"""The batch of keyed hashes gives what the library's BLAKE2b gives, whatever the lengths."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from weft.crypto.primitives import batched_keyed_hashes as hashes
from weft.crypto.primitives.batched_keyed_hashes import Strings, Tails, keyed_hashes

KEY = bytes(range(32))


def judge(content: bytes) -> int:
    return int.from_bytes(blake2b(content, key=KEY, digest_size=8).digest(), "little")


@pytest.fixture(params=["compiled", "one by one"])
def way(request, monkeypatch):
    """Few strings are hashed one by one, many by the compiled loop."""
    monkeypatch.setattr(hashes, "_FEW", 0 if request.param == "compiled" else 10**9)


def test_hashes_of_strings_of_all_lengths_around_a_block(way):
    lengths = [*range(5), 63, 64, 65, 127, 128, 129, 255, 256, 257, 400]
    random = np.random.default_rng(0)
    strings = [random.bytes(n) for n in lengths]
    assert keyed_hashes(KEY, Strings.of(strings)).tolist() == list(map(judge, strings))
    tails = [b"", b"\x00yes", bytes(128), bytes(range(200))]
    pairs = [(s, t) for s in range(len(strings)) for t in range(len(tails))] * 3
    some = Strings.of(strings).take(np.array([s for s, _ in pairs]))
    found = keyed_hashes(KEY, some, Tails(Strings.of(tails), np.array([t for _, t in pairs])))
    assert found.tolist() == [judge(strings[s] + tails[t]) for s, t in pairs]
    assert keyed_hashes(KEY, Strings.of([])).tolist() == []


def test_who_hashes_few_strings_again_and_again_loads_the_compiled_loop(monkeypatch):
    few, loop = [b"%d" % number for number in range(200)], hashes._hash_all
    calls = []
    monkeypatch.setattr(hashes, "_hash_all", lambda *told: calls.append(1) or loop(*told))
    monkeypatch.setattr(hashes, "_so_far", hashes._SoFar())
    monkeypatch.setattr(hashes, "_MANY", 1000)
    for turn in range(7):
        assert keyed_hashes(KEY, Strings.of(few)).tolist() == list(map(judge, few))
        assert len(calls) == max(0, turn - 4)
    keyed_hashes(KEY, Strings.of(few[:20]))
    assert len(calls) == 2


def test_texts_are_strings_of_any_alphabet_with_or_without_breaks():
    for texts in (["a", "", "bc\nd"], ["a", "straße", "", "𝒳\n"], []):
        assert list(Strings.of_texts(texts)) == [text.encode() for text in texts]


def test_lines_are_strings_of_any_alphabet_and_hold_no_breaks():
    texts = ["a", "straße", "名前", "", "𝒳 y"]
    lines = Strings.of_lines(texts)
    assert list(lines) == [text.encode() for text in texts]
    with pytest.raises(ValueError, match="line break"):
        Strings.of_lines(["a\nb"])
