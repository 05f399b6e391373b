"""``weft check`` and ``weft train`` refuse the same runs, in the same words, by the same party."""

import pandas as pd
import pytest

from weft.data import load

pytestmark = pytest.mark.usefixtures("no_pictures")

CONFIG = """
name = "clinics"

[data]
id = "patient"
label = "outcome"
scaling = "standard"
confirm_separate_ids = true
intercept = false

[model]
loss = "{loss}"
lambda = 1e-1

[solver]
gap = 0.5

[privacy]
allow_exposure = true
"""


class Clinics:
    """Parties with a file each."""

    def __init__(self, folder, weft):
        self._folder, self._weft = folder, weft
        self._table = load("breast_cancer")
        self._parties = ""

    def add(self, name, rows, columns, *more, labels=True):
        """Let a party hold some rows and columns; ``more`` are lines of the config."""
        table = self._table
        frame = pd.DataFrame(table.block[rows, columns], columns=table.features[columns])
        frame.insert(0, "patient", table.ids[rows])
        if labels:
            frame["outcome"] = table.labels[rows]
        frame.to_csv(self._folder / f"{name}.csv", index=False)
        lines = [f'name = "{name}"', f'file = "{name}.csv"', *more]
        self._parties += "\n".join(
            ["", "[[party]]", *lines, *([] if labels else ["label = false"])]
        )

    def refusal(self, *terms, loss="hinge"):
        """What both commands say; None: both let the run go on."""
        config = CONFIG.format(loss=loss) + "\n".join(terms) + self._parties
        (self._folder / "config.toml").write_text(config, encoding="utf-8")
        checked = self._weft("check", "config.toml")
        trained = self._weft("train", "config.toml", "--out", f"out-{len(terms)}")
        assert checked.code == trained.code
        if not checked.code:
            assert "Ready: weft train config.toml" in checked.out
            return None
        assert checked.code == 2
        assert checked.err.count("\n") == trained.err.count("\n") == 1
        assert "Ready" not in checked.out
        said = trained.err.removeprefix("weft: ")
        assert (
            checked.err.removeprefix("weft: ").removeprefix("this run would be refused: ") == said
        )
        return said.rstrip("\n")


@pytest.fixture
def clinics(tmp_path, weft):
    return Clinics(tmp_path, weft)


#: Parties with labels of three with ten columns each: what is refused, and what allows it.
SCALARS = {
    1: ("its losses, which those of no other party hide", "allow_lone_labels"),
    2: ("scalars such as losses in a sum over two parties with labels only", "allow_pairs"),
}


@pytest.mark.parametrize("holders", SCALARS)
def test_losses_of_few_label_holders(clinics, holders):
    for number, name in enumerate(("a", "b", "c")):
        columns = slice(10 * number, 10 * number + 10)
        clinics.add(name, slice(0, 60), columns, labels=number < holders)
    what, flag = SCALARS[holders]
    said = clinics.refusal()
    assert said.startswith("party a refuses to tell ")
    assert what in said
    assert said.endswith(f"agree on {flag} = true, or let more bring labels")
    other = {"allow_pairs": "allow_lone_labels", "allow_lone_labels": "allow_pairs"}[flag]
    assert clinics.refusal(f"{other} = true") == said
    assert clinics.refusal(f"{flag} = true", "allow_sample_norms = true") is None


def test_scalars_of_two_parties_that_share_nothing_but_the_problem(clinics):
    """Neither samples nor columns are common, so that nothing else is refused."""
    clinics.add("a", slice(0, 60), slice(0, 10))
    clinics.add("b", slice(60, 120), slice(10, 20))
    said = clinics.refusal()
    assert said.startswith(
        "party a refuses to tell scalars such as losses in a sum over two parties"
    )
    assert said.endswith("agree on allow_pairs = true, or let more take part")
    assert clinics.refusal("allow_pairs = true") is None


def test_two_parties_need_no_term_in_a_sealed_run(clinics):
    """The second has a few samples by itself, which are left out."""
    clinics.add("a", slice(0, 57), slice(0, 10))
    clinics.add("b", slice(3, 60), slice(10, 20), labels=False)
    assert clinics.refusal('mode = "sealed"', loss="logistic") is None


def test_two_parties_scale_common_columns_of_a_sealed_run_on_their_terms(clinics):
    clinics.add("a", slice(0, 60), slice(0, 10))
    clinics.add("b", slice(60, 120), slice(0, 10))
    said = clinics.refusal('mode = "sealed"', loss="logistic")
    assert said.startswith("party a refuses to scale 10 features that it shares with too few")
    assert said.endswith("(scaling = 'none'), or agree on allow_pairs = true")
    assert clinics.refusal('mode = "sealed"', "allow_pairs = true", loss="logistic") is None


def test_a_single_party_needs_no_permission(clinics):
    clinics.add("a", slice(0, 60), slice(0, 10))
    assert clinics.refusal() is None


def test_a_policy_speaks_for_its_own_party_only(clinics, tmp_path):
    (tmp_path / "policy.toml").write_text('matching = "oprf"\n')
    for number, name in enumerate(("a", "b", "c")):
        rows = slice(60 * number, 60 * number + 60)
        clinics.add(name, rows, slice(0, 10), *['policy = "policy.toml"'] * (name == "c"))
    said = clinics.refusal("allow_small_changes = true")
    assert said.startswith("party c refuses matching = 'hmac'")
    assert said.endswith("use 'oprf' (its own policy policy.toml says so)")
    assert clinics.refusal('matching = "oprf"', "allow_small_changes = true") is None


def test_a_party_that_min_batch_leaves_nothing(clinics):
    clinics.add("a", slice(0, 5), slice(0, 10))
    clinics.add("b", slice(5, 65), slice(0, 10))
    clinics.add("c", slice(65, 125), slice(0, 10))
    said = clinics.refusal()
    assert said.startswith("party a has samples only in groups smaller than min_batch = 10")
    assert clinics.refusal("min_batch = 5", "") is None
