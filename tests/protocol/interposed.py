"""Federations for tests of the ciphers: small cuts of real tables, and a channel to tamper with.

Not a test itself. A :class:`Middle` stands between the coordinator and the parties and sees every
message on its way down and every reply on its way up; :func:`interpose` puts it there.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from unittest.mock import patch

import numpy as np

from weft import federation as federation_module
from weft.algorithms.hyfdca import coordinator as hyfdca
from weft.algorithms.settings import Settings
from weft.channels import LocalChannel
from weft.crypto.paillier import PaillierSecret
from weft.data import SPLITS, Table, load
from weft.federation import Federation, Preparation

CIPHERS = ("plain", "pad", "bfv", "paillier")
HIDING = CIPHERS[1:]
LOCALS = ("safe", "practical", "theory")
PARTICIPATIONS = ("everyone", 0.5, {"cyclic": 2})

#: What a history says besides what encryption may change.
COSTS = ("bytes_down", "bytes_up", "compute_seconds", "wall_seconds")


_NEW_KEY = PaillierSecret.new.__func__


@contextmanager
def short_keys(bits=512):
    """Paillier keys that are only good for tests: fifty times faster than real ones."""
    with patch.object(PaillierSecret, "new", classmethod(lambda cls: _NEW_KEY(cls, bits))):
        yield


@cache
def table_of(name, n, m):
    """The first rows and m columns of a real table, every row at most of norm one."""
    whole = load(name)
    block = np.asarray(whole.block, np.float64)
    columns = np.argsort(-block.var(axis=0), kind="stable")[:m]
    block = block[:n, np.sort(columns)]
    block = (block - block.mean(axis=0)) / (block.std(axis=0) + 1e-9)
    block /= np.linalg.norm(block, axis=1).max() * (1 + 1e-9)
    labels = whole.labels[:n]
    if name == "digits":
        labels = labels % 3
    if name == "diabetes":
        labels = (labels - labels.mean()) / labels.std()
    features = whole.features[np.sort(columns)]
    block = np.ascontiguousarray(block)
    return Table(whole.ids[:n], features, block, labels, whole.task, name)


def cut(name, table=None):
    """A table of forty samples and nine features, cut in one of several ways."""
    if table is None:
        table = table_of("breast_cancer", 40, 9)
    splits = {
        "hybrid 2×2": lambda: SPLITS["grid"](table, k=2, q=2),
        "hybrid 3×3": lambda: SPLITS["grid"](table, k=3, q=3),
        "horizontal": lambda: SPLITS["rows"](table, parties=3),
        "vertical": lambda: SPLITS["columns"](table, parties=3),
        "overlap": lambda: SPLITS["overlapping"](table, parties=4, seed=3),
        "multi-class": lambda: SPLITS["grid"](table_of("digits", 40, 9), k=2, q=2),
        "regression": lambda: SPLITS["grid"](table_of("diabetes", 40, 9), k=2, q=2),
        "labels at first": lambda: SPLITS["columns"](table, parties=3, labels="first"),
    }
    return splits[name]()


def quick(**changes):
    """Settings of a short run."""
    base = {"lam": 0.05, "iic": 0.4, "gap": None, "iterations": 4}
    return Settings(**{**base, **changes})


def train(split, settings, preparation=None, **options):
    """Train, with Paillier keys that are short."""
    how = replace(preparation or Preparation(), overlap=split.overlap)
    keys = {"progress", "checkpointing"} & options.keys()
    call = {key: options.pop(key) for key in keys}
    with short_keys():
        return Federation(split.parties, how, **options).train(settings, **call)


def outcome(trained):
    """All that must not depend on the cipher: the model's bits, and the history without costs."""
    history = [asdict(record) for record in trained.result.history]
    for record in history:
        for field in COSTS:
            del record[field]
    return {
        "coef": trained.model.coef.tobytes(),
        "intercept": trained.model.intercept.tobytes(),
        "certificate": trained.result.certificate,
        "model_iteration": trained.result.model_iteration,
        "stopped": trained.result.stopped,
        "notes": trained.result.notes,
        "history": history,
    }


class Middle:
    """Passes everything on; subclasses change what they like.

    Attributes
    ----------
    parties
        The parties themselves, for tests to look at.
    log
        Every message and reply, as they were before this object changed them.
    refused
        Per call that failed: phase, party, error, and what of the party's state had changed.
    """

    def __init__(self):
        self.parties = {}
        self.log = []
        self.refused = []
        self.run = None

    def down(self, phase, party, message):
        """What a party gets instead of a message."""
        return message

    def up(self, phase, party, message, reply):
        """What the coordinator gets instead of a reply."""
        return reply

    def around(self, party, handler):
        def answer(phase, message):
            sent = self.down(phase, party, dict(message))
            before = self._state(party)
            try:
                reply = handler(phase, sent)
            except Exception as error:
                now = self._now(party)
                changed = [k for k, v in before.items() if not np.array_equal(v, now[k])]
                self.refused.append((phase, party, error, changed))
                raise
            self.log.append((phase, party, message, reply))
            return self.up(phase, party, sent, dict(reply))

        return answer

    def _now(self, party):
        half = self.parties[party]._half
        return {} if half is None else {"w": half.w, "alpha": half.alpha, "v": half.v}

    def _state(self, party):
        return {name: value.copy() for name, value in self._now(party).items()}


@contextmanager
def interpose(middle):
    """Let every federation made here talk through ``middle``."""

    class Between(LocalChannel):
        def __init__(self, handlers, **options):
            middle.parties = {name: call.__self__ for name, call in handlers.items()}
            super().__init__(
                {name: middle.around(name, call) for name, call in handlers.items()}, **options
            )

    class Kept(hyfdca.Run):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            middle.run = self

    with (
        patch.object(federation_module, "LocalChannel", Between),
        patch.object(hyfdca, "Run", Kept),
        short_keys(),
    ):
        yield middle


# ── blocks ────────────────────────────────────────────────────────────────────────────────────

#: As in weft.crypto.payload, written down a second time: magic, version, cipher, kind, flags,
#: width, key, count, runs, labels, label.
HEADER = struct.Struct("<2sBBBBHIIIIQ")
FIELDS = ("magic", "version", "cipher", "kind", "flags", "width", "key", "count", "runs", "labels",
          "label")  # fmt: skip
KINDS = ("z", "v", "alpha", "delta")


def blocks_in(message):
    """The blocks of a message by kind."""
    return {
        kind: message[kind]
        for kind in KINDS
        if type(message.get(kind)) is bytes and message[kind][:2] == b"Wb"
    }


def with_header(packed, **changes):
    """A block with other fields in its header."""
    fields = header_of(packed)
    return HEADER.pack(*{**fields, **changes}.values()) + packed[HEADER.size :]


def header_of(packed):
    """The fields of a block's header by name."""
    return dict(zip(FIELDS, HEADER.unpack_from(packed), strict=True))


def body_at(packed):
    """Where the body of a block begins, behind header and labels."""
    head = header_of(packed)
    per_cohort, single = head["flags"] & 1, head["flags"] & 2
    runs = 4 * head["runs"]
    return HEADER.size + (0 if per_cohort else runs) + (0 if single else runs) + 8 * head["labels"]
