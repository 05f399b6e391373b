"""The table of attacks: every test says what it found; WEFT_ATTACK_TABLE names a page for it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide

#: What is attacked, and by whom; the numbers are those of docs/attacks.md.
ATTACKS = {
    "1": ("rows from pairs (w, α)", "coordinator"),
    "1b": ("cells from feature sums with known α", "party that holds sample and feature"),
    "2": ("rows from pairs (w, z)", "coordinator"),
    "2b": ("cells from sample sums with known w", "party that holds sample and feature"),
    "3": ("difference of feature sums, H = 1", "coordinator; the other of two parties"),
    "3b": ("third differences of feature sums", "party with the same columns"),
    "4": ("column space from z and a few known rows", "party with labels"),
    "5": ("Gram matrix from pairs (α, z)", "coordinator; party with labels"),
    "6": ("one changed row among 32 drawn", "party with the same columns"),
    "7": ("difference of two cuts", "party with the same columns"),
    "7b": ("norms of rows from inner products of cuts", "coordinator"),
    "8": ("H = 2 with known draws", "coordinator"),
    "9": ("blinding by the coordinator, read through BFV's noise", "party"),
    "10": ("crafted BFV ciphertext", "coordinator"),
    "11": ("encryption of zero used twice", "coordinator"),
    "12": ("late scalar after a second attempt", "coordinator"),
    "12b": ("estimates over changing sets of parties", "coordinator"),
    "13": ("forged OPRF request", "coordinator"),
    "14": ("block given to a party that does not hold it", "party, coordinator"),
    "15": ("label from α", "holder of the sample without its label"),
    "16": ("two runs, one sample more in the second", "party with the same columns"),
    "17": ("what is left of a sum of three when one falls silent", "party"),
    "18": ("the row of a rare class from the first vector", "party with the same columns"),
    "19": ("documents from words that only they have", "party with the same columns"),
    "20": (
        "rows from vectors of all samples, folds and classes",
        "party with the same columns",
    ),
    "21": ("guesses at foreign columns from few sums", "party with labels"),
    "26": ("one party's scalars, from totals over chosen parties or questions", "coordinator"),
    "27": ("forged seeds, a forged BFV key, one number for two parties", "coordinator"),
    "28": ("recorded letters and masks, by keys stolen later", "thief of one party's keys"),
    "23": ("labels from tokens under several lists of classes", "coordinator that lies"),
    "25": ("guards switched off by false facts", "coordinator that lies"),
    "29": ("forged totals, tried until one passes", "coordinator"),
    "31": ("sizes of groups from refusals and totals, steered by a run's terms", "submitter"),
    "33": ("a margin from totals with made-up records of pads", "coordinator"),
    "34": ("one party's weight and losses, by roles of the coordinator's choice", "coordinator"),
    "35": ("a cell from the α of one sample, nothing being told of the others", "coordinator"),
    "36": ("one party's classes, and equal tokens, by runs of the same name", "coordinator"),
    "37": ("margins of samples from totals spliced slot by slot", "coordinator"),
    "38": (
        "a row from α that is frozen, or a step that is taken, twice",
        "coordinator and a party",
    ),
    "39": ("every party's largest value, from digits of the largest", "coordinator"),
    "40": ("a party's part of joint predictions, by a unit of the coordinator's", "coordinator"),
    "44": ("a party's own feature sums, asked for alone", "coordinator"),
    "45": ("single cells, by masks that are taken off at will", "coordinator"),
    "60": ("which levels two parties share, by lists that are joined alone", "coordinator"),
    "41": ("one party's part of ‖u‖² in HyFDCA's power iteration", "coordinator"),
    "46": ("inner products of single samples, by steps and turns that are chosen", "coordinator"),
    "47": ("margins of samples, by a first contribution that is taken back", "coordinator"),
    "48": ("dual variables of samples, told or changed one at a time", "coordinator"),
    "49": (
        "a party's own feature sums, by masks taken off under a sum of all",
        "coordinator and a party",
    ),
    "50": ("labels, columns and rows from a sealed run's records", "parties that collude; dealer"),
    "51": ("gradients from exact inner products, by a lattice", "coordinator, the dealer"),
    "52": ("cells, weights and scores from masked words", "dealer; all parties but one"),
    "54": ("one party's scalars, by α of HyFDCA that only it takes over", "coordinator"),
    "55": ("one party's change of losses, by points frozen at different times", "coordinator"),
    "56": ("scores of samples, by losses at points that are very far off", "coordinator"),
    "57": ("cells in sealed training, by wrong numbers that are dealt", "coordinator"),
    "62": ("single rows from second moments of a sealed run", "reader of the model, a party"),
    "63": ("single samples from one sealed model", "reader of the model, a party"),
    "64": ("a sample's row from two sealed models", "reader of the models, a party"),
    "65": ("a sample's fold and loss from losses by class and fold", "coordinator"),
    "66": ("losses of samples from those of folds, over many runs", "party that submits runs"),
    "67": ("sizes of a lone label holder's classes, by what is left out", "coordinator"),
    "68": ("cells from second moments of many runs, by made-up columns", "reader, a party"),
    "69": ("a row from columns of two parties that differ in one sample", "reader of the model"),
    "70": ("cells and labels from weights of sealed models, by made-up columns", "reader, a party"),
    "71": ("a row from two matrices that weigh samples otherwise", "reader of the model, a party"),
    "72": ("labels from losses of sealed runs, by made-up columns", "party that submits runs"),
    "73": ("labels from one sealed model over own columns, by a lattice", "reader, a party"),
    "32": ("others' contributions to a sum, with one holder's keys", "coordinator and a party"),
    "76": ("a row from two sealed models, by a column that is large in it", "reader, a party"),
    "74": ("outcomes of a site from the intercept of its own", "reader of the model"),
    "75": ("cells from joint predictions under several models", "party that asks for scores"),
    "77": ("rows from second moments in the span of a run's vectors", "coordinator"),
}

#: Where the table stands in docs/attacks.md.
_BEGIN, _END = "<!-- written by the tests -->", "<!-- end -->"
_HEAD = "| | attack | who attacks | unguarded | Weft with guards |\n|---|---|---|---|---|"
_found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

#: Takes the number of an attack, "unguarded" or "guarded", and what came out.
Record = Callable[[str, str, str], None]


@pytest.fixture(scope="module", autouse=True)
def dual_vectors_stay():
    """For judges, who look at dual vectors when a party has forgotten them: their sums are told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SampleSide, "_forget_duals", lambda side: None)
        yield


@pytest.fixture
def record() -> Record:
    """Note what an attack found, for the table."""

    def note(attack: str, side: str, result: str) -> None:
        assert attack in ATTACKS
        assert side in ("unguarded", "guarded")
        print(f"attack {attack}, {side}: {result}")
        _found[attack][side].append(result)

    return note


def pytest_sessionfinish() -> None:
    """Write the table into the file that is asked for, between its marks."""
    path = os.environ.get("WEFT_ATTACK_TABLE")
    # Workers of xdist know a part of it only.
    if not path or not _found or "PYTEST_XDIST_WORKER" in os.environ:
        return
    lines = [_HEAD]
    for number, (what, who) in ATTACKS.items():
        found = (dict.fromkeys(_found[number][side]) for side in ("unguarded", "guarded"))
        sides = ("; ".join(results) or "–" for results in found)
        lines.append(f"| {number} | {what} | {who} | {' | '.join(sides)} |")
    page = Path(path)
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    text = "\n".join([before + _BEGIN, *lines, _END + after])
    page.write_text(text, encoding="utf-8")
