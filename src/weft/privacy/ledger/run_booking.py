"""A run under way in a party's ledger: nothing is sent or used before it is booked.

Beside sums (`weft.privacy.ledger.sum_booking`) a run books who takes part, budgets of noise, what
models and matrices tell, columns told cell by cell, folds, buckets of scores, edges and questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.errors import ConfigError
from weft.guards.model_noise_size import ModelNoise
from weft.guards.privacy_terms import Terms
from weft.guards.score_buckets import EarlierCounts
from weft.privacy.ledger.earlier_samples import Attendance
from weft.privacy.ledger.earlier_scoring_partners import companies_of
from weft.privacy.ledger.earlier_sealed_models_and_moments import (
    FOLDS_REFUSED,
    NumberKind,
    judge_once,
    refuse_further_numbers,
    refuse_second_weighting,
)
from weft.privacy.ledger.fold_cuts_of_earlier_runs import FoldCut
from weft.privacy.ledger.ledger_contents import Hashes, Kind, LedgerContents, Question
from weft.privacy.ledger.ledger_file import Book
from weft.privacy.ledger.sum_booking import Objection, SumBooking
from weft.solvers.secret_sharing.coalition_knowledge import Told

#: Objects to a question by those before it, and by how many samples had another company then.
QuestionObjection = Callable[[Question, Sequence[Question], int], None]


@dataclass(frozen=True)
class Ledger:
    """Where parties keep their ledgers, and what this federation is called in them."""

    folder: Path
    federation: str = ""

    def book(self, party: str) -> Book:
        """The file of a party."""
        return Book(self.folder, party)

    def account(self, party: str, kind: Kind, terms: Terms, draws: RandomnessLog) -> Account:
        """What one run of a party comes to under its terms."""
        return Account(
            self.book(party),
            self.federation,
            kind,
            strict=not terms.allow_exposure,
            most_explained=terms.most_explained,
            draws=draws,
        )


class Account(SumBooking):
    """What one run of one party comes to."""

    def attend(self, attendance: Attendance | None, objecting: Objection) -> None:
        """Take down who takes part; None: others see no feature sum with any of these samples.

        ``objecting`` is asked at once whether this run may stand beside those before it, and again
        before the first feature sum is sent: others may have come in between.
        """
        self._attendance, self._object = attendance, objecting
        self._once("objection", lambda: self._refuse_change(self._pages))

    def attend_scores(self, attendance: Attendance | None, objecting: Objection) -> None:
        """The same for counts of held-out scores, which are about more samples, or others."""
        self._attendance, self._object = attendance, objecting
        self._once("objection to scores", lambda: self._refuse_change(self._pages))

    def _refuse_change(self, pages: LedgerContents | None) -> bytes:
        who = self._attendance
        if pages is not None and who is not None and self._object is not None:
            self._object(lambda at_least: pages.change(who, at_least))
        return b""

    def check_budget(self, noise: ModelNoise, most: tuple[float, float]) -> None:
        """Refuse noise that would go beyond ``most`` ε and δ over all models, before training."""
        self._once("budget", lambda: self._insist_on_budget(self._book.read(), noise, most))

    def spend(self, noise: ModelNoise, most: tuple[float, float]) -> None:
        """Book the ε and δ of a model, before a weight of it is handed out; once in a run."""
        if not self._epsilon:
            self._once("noise", lambda: self._write_noise(noise, most))
            self._epsilon, self._delta = noise.epsilon, noise.delta
            self._begun = True

    def _insist_on_budget(
        self, pages: LedgerContents | None, noise: ModelNoise, most: tuple[float, float]
    ) -> bytes:
        spent = (0.0, 0.0) if pages is None else pages.spent(without=self._run_id)
        wanted = (noise.epsilon, noise.delta)
        for sign, before, more, limit in zip("εδ", spent, wanted, most, strict=True):
            if before + more > limit:
                raise ConfigError(
                    f"party {self._book.party} refuses to release a model with {sign} = {more:g}, "
                    f"since {before:g} of {limit:g} are spent by its ledger; ask for less, or "
                    "agree on more",
                    told=f"party {self._book.party} refuses to release a model with {sign} = "
                    f"{more:g}, which goes beyond its budget; ask for less, or agree on more",
                )
        return b""

    def _write_noise(self, noise: ModelNoise, most: tuple[float, float]) -> bytes:
        with self._book.locked():
            pages = self._open_pages()
            self._insist_on_budget(pages, noise, most)
            run = self._run(self._booked, None, self._attendance if self._noted else None)
            spent = msgspec.structs.replace(run, epsilon=noise.epsilon, delta=noise.delta)
            self._put(pages, spent)
        return b""

    def spend_rho(self, rho: float, most: float) -> None:
        """Book what feature sums with noise tell, before they are sent."""

        def write() -> bytes:
            with self._book.locked():
                pages = self._open_pages()
                before = pages.rho_spent(without=self._run_id) + self._rho
                if before + rho > most * (1 + 1e-12):
                    raise ConfigError(
                        f"party {self._book.party} refuses further feature sums, since {before:g} "
                        f"of ρ = {most:g} are spent by its ledger; train with fewer sums or more "
                        "noise, or agree on more",
                        told=f"party {self._book.party} refuses further feature sums, which go "
                        "beyond its budget; train with fewer sums or more noise, or agree on more",
                    )
                run = self._run(self._booked, None, self._attendance if self._noted else None)
                self._put(pages, msgspec.structs.replace(run, rho=self._rho + rho))
            return b""

        self._once("sum noise", write)
        self._rho += rho
        self._begun = True

    def note_attendance(self) -> None:
        """Write down who takes part, before the first feature sum is sent."""
        who = self._attendance
        if who is None or self._noted:
            return
        self._once("attendance", lambda: self._write_attendance(who))
        self._noted = self._begun = True

    def _write_attendance(self, who: Attendance) -> bytes:
        with self._book.locked():
            pages = self._open_pages()
            self._refuse_change(pages)
            pages.remember(who, self._began)
            self._put(pages, self._run(self._booked, None, who))
        return b""

    def foresee_numbers(self, kind: NumberKind, told: Told, *, hessian: bool = False) -> None:
        """Refuse a model, or matrices, that tell too much with those of earlier runs."""
        self._told[kind] = told
        self._hessian = self._hessian or hessian
        self._once(f"{kind} ahead", lambda: self._refuse_numbers(self._book.read(), kind))

    def _refuse_numbers(self, pages: LedgerContents | None, kind: NumberKind) -> bytes:
        who, told = self._attendance, self._told[kind]
        if not self._exposes and pages is not None and who is not None:
            before = pages.numbers_told(kind, who, len(told.by_row))
            if kind == "moments":
                weighed = pages.numbers_told("hessians", who, len(told.by_row))
                refuse_second_weighting(self._book.party, before, weighed, hessian=self._hessian)
            refuse_further_numbers(self._book.party, kind, told, before)
        return b""

    def note_model(self) -> None:
        """Write down what a sealed model tells, and of whom, before a share of it goes out."""
        if self._model_out or "models" not in self._told:
            return
        self.note_attendance()
        self._model_out = True
        self._once("model", lambda: self._write_numbers("models"))
        self._begun = True

    def note_moments(self, names: tuple[str, ...]) -> None:
        """Write down which matrices over all columns go out, and over whom, before they do."""
        if self._moments:
            return
        self.note_attendance()
        self._moments = names
        self._once("moments", lambda: self._write_numbers("moments"))
        self._begun = True

    def _write_numbers(self, kind: NumberKind) -> bytes:
        who = self._attendance
        with self._book.locked():
            pages = self._open_pages()
            # Others may have come in between.
            self._refuse_numbers(pages, kind)
            if who is not None:
                pages.add_numbers(kind, who, self._told[kind].by_row)
                if kind == "moments" and self._hessian:
                    pages.add_numbers("hessians", who, np.ones_like(self._told[kind].by_row))
            self._put(pages, self._run(self._booked, None, who))
        return b""

    def note_told(self, columns: tuple[str, ...], samples: int) -> None:
        """Write down which columns are told cell by cell, of how many samples, before they are.

        Whoever submits a study names them: run by run it could have all columns told. So those of
        the first run that told any are the only ones, unless exposure is agreed on.
        """

        def write() -> bytes:
            with self._book.locked():
                pages = self._open_pages()
                before = pages.columns_told(without=self._run_id)
                other = [name for name in columns if before and name not in before]
                if other and not self._exposes:
                    raise ConfigError(
                        f"party {self._book.party} refuses to tell the values of column "
                        f"'{other[0]}' to who has the labels, since by its ledger earlier runs "
                        "told others; name the same column, or agree on allow_exposure = true"
                    )
                run = self._run(self._booked, None, self._attendance if self._noted else None)
                self._put(pages, msgspec.structs.replace(run, told=columns, told_samples=samples))
            return b""

        self._once("told columns", write)
        self._columns_told = (columns, samples)
        self._begun = True

    def judge_folds(self, folds: int, judge: Callable[[], None]) -> None:
        """Let folds be judged by classes of this party's alone, in one number of folds only.

        Answers to several numbers are sizes of classes, between bounds; so are answers for classes
        that are joined otherwise. So none is given after one that was no.
        """

        # Only sealed runs ask, and their parties have it loaded.
        from weft.solvers.secret_sharing.fold_rows import FOLDS_UNSAID

        def attempt() -> bytes:
            who = self._attendance
            assert who is not None
            refusal, rows = None, int(who.rows.max(initial=-1)) + 1
            with self._book.locked():
                pages = self._open_pages()
                before = pages.numbers_told("judged_folds", who, rows)
                if (before[before > 0] != folds).any():
                    raise ConfigError(FOLDS_UNSAID)
                try:
                    judge()
                except ConfigError as error:
                    refusal = error
                number = folds if refusal is None else FOLDS_REFUSED
                pages.add_numbers("judged_folds", who, number - before)
                self._put(pages, self._run(self._booked, None, who))
            if refusal is not None:
                raise refusal
            return b""

        self._once("judged folds", attempt)
        self._begun = True

    def judge_responses(
        self, counted: Ints, known: NDArray[np.object_], judge: Callable[[], None]
    ) -> None:
        """Let responses be judged, and book that before the answer is known.

        ``counted`` are local rows whose responses count, ``known`` all samples with one. Who takes
        part is written down where the answer is yes, so that no few samples make it a no.
        """

        def attempt() -> bytes:
            who, refusal = self._attendance, None
            assert who is not None
            with self._book.locked():
                pages = self._open_pages()
                self._refuse_change(pages)
                taking = pages.hashes(who.ids[np.isin(who.rows, counted)])
                memory = pages.numbers["judged_responses"]
                try:
                    judge_once(memory, taking, np.unique(pages.hashes(known)), judge)
                    pages.remember(who, self._began)
                except ConfigError as error:
                    refusal = error
                self._put(pages, self._run(self._booked, None, who))
            if refusal is not None:
                raise refusal
            return b""

        self._once("judged responses", attempt)
        self._noted = self._begun = True

    def note_question(self, question: Question, asked: Flags, objecting: QuestionObjection) -> None:
        """Write down what a joint prediction shows others, before it does.

        ``asked`` says of which shared rows. ``objecting`` is given what is asked, what was asked
        before, and how many samples were scored with other parties then; it may refuse it.
        """

        def write() -> bytes:
            with self._book.locked():
                pages = self._open_pages()
                samples, company = self._scored(pages, question.company, asked)
                apart = pages.companies.differing(samples, company)
                objecting(question, pages.questions(without=self._run_id), apart)
                pages.companies.add(samples, company)
                run = self._run(self._booked, None, None)
                self._put(pages, msgspec.structs.replace(run, question=question))
            return b""

        self._once("question", write)
        self._question = question
        self._begun = True

    def _scored(
        self, pages: LedgerContents, parties: tuple[str, ...], asked: Flags
    ) -> tuple[Hashes, Hashes]:
        """Samples of a joint prediction and with whom they are scored; none, if nobody is named."""
        if not parties:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        companies = pages.company_hashes(companies_of(self._view, parties))
        cohorts = self._view.row_cohort[: len(asked)][asked]
        return pages.hashes(self._ids[asked]), companies[cohorts]

    def note_folds(self, cut: FoldCut, objecting: Callable[[Callable[[int], int]], None]) -> None:
        """Write down how folds cut the samples, unless ``objecting`` does not let them.

        It is given how many samples would stand in parts of fewer than it says.
        """

        def write() -> bytes:
            with self._book.locked():
                pages = self._open_pages()
                objecting(lambda at_least: pages.cut_apart(cut, at_least))
                pages.remember_folds(cut, self._began)
                self._put(pages, self._run(self._booked, None, self._attendance))
            return b""

        self._once("folds", write)
        self._begun = True

    def note_scores(
        self,
        ids: NDArray[np.object_],
        starts: Ints,
        levels: Ints,
        choose: Callable[[Sequence[EarlierCounts]], Ints],
        *,
        alone: bool,
    ) -> Ints:
        """Let buckets of held-out scores be chosen by those before, and write them down.

        ``levels`` (samples × columns) are the groups that they are counted in.
        ``alone`` says whether a few samples may stand alone between two evaluations, so that
        earlier ones count for nothing.
        """

        def write() -> bytes:
            with self._book.locked():
                pages = self._open_pages()
                samples = pages.hashes(ids)
                places = choose(() if alone else pages.scored.earlier(samples))
                for row in places:
                    for level in levels.T if (row >= 0).any() else ():
                        told = pages.scored.place(starts[row], level)
                        pages.scored.remember(samples, np.where(row >= 0, told, 0), self._began)
                self._put(pages, self._run(self._booked, None, self._attendance))
            return places.astype(np.int64).tobytes()

        self._begun = True
        return np.frombuffer(self._once("scores", write), np.int64).reshape(-1, len(ids))

    def note_edges(
        self, cut: Callable[[Callable[[str], Floats]], dict[str, Floats]], *, alone: bool
    ) -> dict[str, Floats]:
        """Let columns be cut by where they were before, and write down where, by name.

        ``alone`` says whether a few samples may stand alone between two descriptions, so that
        earlier edges count for nothing.
        """

        def write() -> bytes:
            with self._book.locked():
                pages = self._open_pages()

                def earlier(name: str) -> Floats:
                    (column,) = pages.column_hashes([name]).tolist()
                    return np.zeros(0) if alone else pages.edges.of(column)

                edges = cut(earlier)
                for column, name in zip(pages.column_hashes(list(edges)), edges, strict=True):
                    pages.edges.add(int(column), edges[name])
                self._put(pages, self._run(self._booked, None, self._attendance))
            return msgspec.msgpack.encode({name: found.tolist() for name, found in edges.items()})

        found = msgspec.msgpack.decode(self._once("edges", write), type=dict[str, list[float]])
        self._begun = True
        return {name: np.array(edges, np.float64) for name, edges in found.items()}
