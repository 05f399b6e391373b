"""What guards against single rows cost: accuracy on newsgroups, and the gaps that hinge reaches.

``words``   Documents at four parties by rows, one half of the groups against the other: words that
            few of a party's documents have are left out of its sums. Accuracy with guards, held
            against that without. Needs the data directory: set WEFT_DATA.
``floors``  The hinge loss under cutting planes, whose dual variables must not single samples out:
            the gap that is certified after 150 iterations, held against that without guards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import scipy.sparse as sp

from harness import Report
from harness.splits import find_data, synthetic
from weft.data import SPLITS, Split, Table, load
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import OPEN, Terms
from weft.solvers.run_settings import Settings

#: Careful terms, but for the cipher and for how much sums explain: that is no matter of samples.
CAREFUL = Terms(ciphers=("plain",), allow_exposure=True)
TERMS = {"without guards": OPEN, "with guards": CAREFUL}


def train(split: Split, settings: Settings, terms: Terms, scaling: str = "none") -> Trained:
    federation = Federation(
        split.parties, Preprocessing(scaling=scaling, confirmed=ONE_TABLE), terms=terms
    )
    return federation.train(msgspec.structs.replace(settings, cipher="plain"))


# ── words ─────────────────────────────────────────────────────────────────────────────────────


def documents(smoke: bool) -> Table:
    """Words of newsgroups."""
    if smoke:
        tiny = synthetic(240, 16)
        return replace(tiny, block=sp.csr_array(tiny.block))
    find_data()
    return load("newsgroups", ngrams=(1, 1))


def words_part(report: Report) -> None:
    if not report.wants("words"):
        return
    table = documents(report.smoke)
    order = np.random.default_rng(0).permutation(table.n)
    many, few = (200, 40) if report.smoke else (4000, 2000)
    rows, test = np.sort(order[:many]), np.sort(order[-few:])
    chosen = Table(table.ids[rows], table.features, table.block[rows], table.labels[rows], "binary")
    split = SPLITS["rows"](chosen, parties=4)
    settings = Settings(lam=1e-4, solver="lbfgs", loss="logistic", gap=1e-2)
    place = {name: number for number, name in enumerate(table.features.tolist())}
    open_ = None
    for how, terms in TERMS.items():
        trained = train(split, settings, terms)
        weights = np.zeros(table.m)
        model = trained.model
        weights[[place[name] for name in model.features.tolist()]] = model.coef[0]
        right = (table.block[test] @ weights > 0) == (table.labels[test] == model.classes[1])
        accuracy = float(right.mean())
        report.add(f"words: accuracy {how}", accuracy, "", anchor=open_, better="higher")
        report.add(f"words: words with a weight {how}", int((weights != 0).sum()), "words")
        open_ = accuracy


# ── floors ────────────────────────────────────────────────────────────────────────────────────


def floors_part(report: Report) -> None:
    for name, way, options in (
        ("digits", "grid", {"k": 3, "q": 3}),
        ("breast_cancer", "rows", {"parties": 4}),
    ):
        for lam in (1e-2, 1e-3):
            title = f"floors: {name}, {way}, λ = {lam:g}"
            if report.wants(title):
                table = synthetic(240, 9) if report.smoke else two_classes(load(name))
                floor(report, title, SPLITS[way](table, **options), lam)


def two_classes(table: Table) -> Table:
    """Even against odd where there are more."""
    labels = np.asarray(table.labels).astype(int) % 2
    return Table(table.ids, table.features, table.block, labels, "binary")


def floor(report: Report, title: str, split: Split, lam: float) -> None:
    iterations = 5 if report.smoke else 150
    settings = Settings(lam=lam, solver="cutting-planes", gap=1e-6, iterations=iterations)
    open_ = None
    for how, terms in TERMS.items():
        trained = train(split, settings, terms, "standard")
        certificate = trained.result.certificate
        if certificate is None:
            raise RuntimeError(f"{title} has no certificate")
        report.add(f"{title}: gap {how}", certificate.gap, "", anchor=open_)
        open_ = certificate.gap


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("What guards cost", "without guards", arguments)
    words_part(report)
    floors_part(report)
    report.close()


if __name__ == "__main__":
    main()
