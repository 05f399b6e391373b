"""Follow runs of every family of solvers, and leave optional fields out of their requests.

``python absences.py FOLDER`` prints what copies of the parties said, as JSON. A process of its own:
a copy is a fork, which took five times as long in a process full of what other tests had left.
FOLDER is where processes wait for each other's compilations. The table is made up: real ones come
with a library that takes longer to load than all these runs.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from compile_once import compile_once
from interposed import Middle, cut, interpose, quick, train
from small_federations import make_table
from weft.errors import WeftError
from weft.federation.local_federation import Preprocessing
from weft.protocol.declared_message_fields import Part, declared
from weft.protocol.phase_with_request_and_reply import phase_named

#: Optional fields whose absence asks for something else, and what that is.
MODES = {
    "announce.classes": "labels are numbers, or another party tells the classes",
    "match.tokens.classes": "the same",
    "certify.freeze.alpha": "the frozen pair is where the party stands",
    "hyfdca.begin.z": "the local method needs no norms",
    "hyfdca.dual.alpha_slots": "the block is for all shared slots",
    "hyfdca.dual.send": "it speaks for all of its cohorts",
    "hyfdca.fused.every": "less is told: no norms and losses of all samples",
    "hyfdca.fused.omega": "the constant of the set-up holds",
    "hyfdca.fused.still": "a step is taken",
    "hyfdca.fused.measure": "less is told: no scalars",
    "hyfdca.fused.counted": "the whole norm is told, not its change",
    "hyfdca.spread.first": "the block is X̃v, not the norms",
    "hyfdca.fused.attending": "the sum goes over everyone, or comes out as noise",
    "hyfdca.spread.attending": "the sum goes over everyone, or comes out as noise",
    "hyfdca.step.attending": "the sum goes over everyone, or comes out as noise",
    "hyfdca.weights.attending": "the sum goes over everyone, or comes out as noise",
    "hyfdca.step.measure": "less is told: no scalars",
    "hyfdca.step.omega": "the constant of the set-up holds",
    "hyfdca.step.active": "the number of holders of the set-up holds",
    "hyfdca.step.send": "it speaks for all of its cohorts",
    "hyfdca.step.still": "a step is taken",
    "hyfdca.weights.counted": "the whole norm is told, not its change",
    "hyfdca.weights.every": "less is told: inner products of the samples drawn only",
    "hyfdca.weights.measure": "less is told: no scalars",
    "match.view.units": "less is told: no tokens of how large columns are",
    "measure.losses.keep": "no older model may be released any more",
    "measure.losses.send": "feature sums are told, not posted dual variables",
    "measure.norms.keep": "no older model may be released any more",
    "measure.products.keep": "no older model may be released any more",
    "measure.spread.alpha": "the party has all of the dual vector",
    "release.model": "the last model is released, not an earlier one",
    "rounds.local.measure": "less is told: no scalars",
    "rounds.merge.measure": "less is told: no scalars",
    "subspace.gather.first": "less is told: no sizes of the samples",
    "subspace.gather.keeps": "no dual vectors are kept, and no ascent begins from any",
    "subspace.gather.later": "vectors are told now, in a sum over everyone or as noise",
    "subspace.gather.send": "it speaks for all of its cohorts",
    "subspace.point.model": "no model is kept",
    "subspace.search.ascent": "less is told: no ascended dual vector",
    "subspace.search.moments": "less is told: no second moments",
    "subspace.search.stretched": "less is told: no dual vectors at multiples of the target",
    "subspace.search.beside": "less is told: no dual vectors at other points",
    "subspace.gather.rounding": "slopes are those of the loss with its kink",
    "subspace.search.rounding": "slopes are those of the loss with its kink",
    "subspace.search.later": "vectors are told now, in a sum over everyone or as noise",
    "subspace.search.send": "it speaks for all of its cohorts",
    "subspace.spread.first": "less is told: no mean of ‖x‖²",
    "subspace.spread.fold": "no vectors are folded together",
    "subspace.spread.products": "less is told: no inner products",
}

#: Not read in the first iteration: nothing was summed yet, and slopes at 0 follow from labels.
LATER = {"rounds.merge.z", "rounds.local.v", "rounds.local.delta"}

RUNS = {
    "hyfdca safe, some take part": ("hybrid 2×2", {"certify_every": 2, "participation": 0.6}),
    "hyfdca safe, everyone": ("hybrid 2×2", {"certify_every": 1}),
    "hyfdca theory": ("hybrid 2×2", {"local": "theory", "participation": 0.6}),
    "hyfdca practical, lone labels": ("labels at first", {"local": "practical"}),
    "hyfdca on rows": ("horizontal", {"certify_every": 1}),
    "cutting planes, lone labels": ("labels at first", {"solver": "cutting-planes"}),
    "newton-cg": ("hybrid 2×2", {"solver": "newton-cg", "loss": "logistic"}),
    "fedavg": ("hybrid 2×2", {"solver": "fedavg", "loss": "logistic", "participation": 0.6}),
    "fedsgd, lone labels": ("labels at first", {"solver": "fedsgd", "loss": "logistic"}),
    "disco": ("horizontal", {"solver": "disco", "loss": "logistic"}),
    "feddcd": ("horizontal", {"solver": "feddcd", "loss": "logistic"}),
    "admm": ("hybrid 2×2", {"solver": "admm", "loss": "logistic"}),
}


#: Phases that every run has; two runs try them, with labels at all parties and at one.
COMMON = ("announce", "classes", "match.", "scale.", "size", "release")
TRY_COMMON = ("hyfdca safe, everyone", "cutting planes, lone labels")


class Absences(Middle):
    """Asks copies of the parties for every request without one of its optional fields.

    Parameters
    ----------
    skipped
        Beginnings of names of phases that are left alone: a copy is a process, which takes a while.
    alike
        Whether all parties have labels: then one of them is asked, else the first and another.
    """

    def __init__(self, skipped, *, alike):
        super().__init__()
        self.skipped = skipped
        self.alike = alike
        self.tried = set()
        self.answered = {}

    def down(self, phase, party, message):
        if phase.startswith(self.skipped):
            return message
        for field in declared(phase_named(phase).request):
            name = f"{phase}.{field.name}"
            part = issubclass(field.kind, Part)
            left = {k: v for k, v in message.items() if not belongs(k, field.name, part=part)}
            whom = self.alike or party == min(self.parties)
            early = name in LATER and message["iteration"] == 1
            absent = field.required or len(left) == len(message)
            if not (absent or early or name in MODES or (name, whom) in self.tried):
                self.tried.add((name, whom))
                if said := self.copied(phase, party, left):
                    self.answered[name, party] = said
        return message

    def copied(self, phase, party, message):
        """What a copy of the party says to a message; empty: it refuses."""
        ours, copys = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            try:
                told = phase_named(phase)
                reply = self.parties[party].on(told, told.read_request(message))
                said = f"answers with {reply!r}"
            except WeftError:
                said = ""
            except BaseException as error:
                said = f"breaks down over it: {error!r}"
            os.write(copys, said.encode()[:4000])
            os._exit(0)
        os.close(copys)
        with os.fdopen(ours, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        os.waitpid(child, 0)
        return said

    def _now(self, party):
        return {}


def belongs(key, name, *, part):
    return key.startswith(f"{name}.") if part else key == name


def small_table():
    """Forty samples and nine features, every row at most of norm one."""
    table = make_table(40, 9)
    longest = np.linalg.norm(table.block, axis=1).max()
    return replace(table, block=table.block / (longest * (1 + 1e-9)))


def follow(run):
    """What was tried in a run, and which copies did not refuse."""
    split, settings = RUNS[run]
    # 'theory' needs rows as they are, of norm one.
    scaling = "none" if settings.get("local") == "theory" else "standard"
    absences = Absences(() if run in TRY_COMMON else COMMON, alike=split != "labels at first")
    with interpose(absences):
        train(cut(split, small_table()), quick(**settings), Preprocessing(scaling=scaling))
    answered = {" ".join(where): said for where, said in absences.answered.items()}
    return {"tried": len(absences.tried), "answered": answered}


if __name__ == "__main__":
    compile_once(Path(sys.argv[1]))
    # Else copies look through all that was loaded, and so make it their own.
    gc.freeze()
    print(json.dumps({run: follow(run) for run in RUNS}))
