"""Ciphers for vectors of integers, behind one interface.

The party's half encrypts and decrypts; the coordinator's half adds what it cannot read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.crypto.fixed_point import Integers
from weft.errors import ConfigError

Payload = NDArray[Any]
Slots = NDArray[np.int32]


class Cipher(ABC):
    """A party's half: knows the keys of its own cohorts."""

    name: str

    @abstractmethod
    def encrypt(self, kind: str, slots: Slots | None, values: Integers) -> Payload:
        """Hide an increment to ``slots`` (all shared slots when None) of the sum ``kind``."""

    @abstractmethod
    def decrypt(self, kind: str, slots: Slots | None, payload: Payload) -> Integers:
        """Open totals of the sum ``kind`` at ``slots``."""


class Adder(ABC):
    """The coordinator's half: adds and forwards with public material only."""

    name: str

    @abstractmethod
    def zeros(self, slots: int, width: int) -> Payload:
        """A total over nothing."""

    @abstractmethod
    def add(self, totals: Payload, slots: NDArray[np.int64], payload: Payload) -> None:
        """totals[slots] += payload; a slot may occur more than once."""

    @abstractmethod
    def take(self, totals: Payload, slots: NDArray[np.int64]) -> Payload:
        """A copy of some totals, to be forwarded."""


class Plain(Cipher):
    """No encryption: fixed point only, for simulation."""

    name = "plain"

    def encrypt(self, kind: str, slots: Slots | None, values: Integers) -> Payload:
        return values

    def decrypt(self, kind: str, slots: Slots | None, payload: Payload) -> Integers:
        return payload


class PlainAdder(Adder):
    """Adds integers modulo 2^64."""

    name = "plain"

    def zeros(self, slots: int, width: int) -> Payload:
        return np.zeros((slots, width), np.int64)

    def add(self, totals: Payload, slots: NDArray[np.int64], payload: Payload) -> None:
        if totals.shape[1] == 1:
            np.add.at(totals[:, 0], slots, payload[:, 0])
        else:
            np.add.at(totals, slots, payload)

    def take(self, totals: Payload, slots: NDArray[np.int64]) -> Payload:
        return totals.take(slots, axis=0)


CIPHERS: dict[str, tuple[type[Cipher], type[Adder]]] = {"plain": (Plain, PlainAdder)}


def cipher_of(name: str) -> Cipher:
    """A party's cipher by name."""
    return _named(name)[0]()


def adder_of(name: str) -> Adder:
    """The coordinator's half of a cipher by name."""
    return _named(name)[1]()


def _named(name: str) -> tuple[type[Cipher], type[Adder]]:
    if name not in CIPHERS:
        raise ConfigError(f"unknown cipher '{name}'; choose one of {', '.join(sorted(CIPHERS))}")
    return CIPHERS[name]
