"""A sealed run on the command line: what each command says of it before, during and after."""

from __future__ import annotations

import json

import pytest

from weft.cli import main
from weft.privacy.ledger.run_booking import Ledger

pytestmark = pytest.mark.usefixtures("no_pictures")

CONFIG = """
name = "sealed"
[data]
dataset = "breast_cancer"
split = {{ name = "columns", parties = 3 }}
[model]
loss = "{loss}"
lambda = 1e-2
[solver]
gap = 0.2
[privacy]
mode = "{mode}"
allow_exposure = true
"""


@pytest.fixture
def told(tmp_path, capsys, monkeypatch):
    """Runs a command on a config with these words; what it says, in one line."""
    monkeypatch.chdir(tmp_path)

    def run(*command, mode="auto", loss="logistic", config=CONFIG, code=0):
        (tmp_path / "config.toml").write_text(config.format(mode=mode, loss=loss))
        with pytest.raises(SystemExit) as ended:
            main(list(command))
        assert ended.value.code == code
        said = capsys.readouterr()
        return " ".join((said.out + said.err).split())

    return run


SEEN_IN_SUMS = ("LIKELY REACHED", "MAY BE REACHED", "labels are visible", "each get about")


def test_check_says_that_nothing_but_sizes_scalars_and_the_model_is_seen(told):
    sealed = told("check", "config.toml", mode="sealed")
    assert "nothing beyond the model" in sealed
    assert "the shapes of all tables" in sealed
    assert "inner products of gradients, with noise" in sealed
    assert "TOGETHER WITH A PARTY, or by dealing falsely, it could compute all" in sealed
    assert not any(words in sealed for words in SEEN_IN_SUMS)
    sums = told("check", "config.toml", mode="sums")
    assert any(words in sums for words in SEEN_IN_SUMS)
    assert 'mode = "sealed" in [privacy]: about 0 sums, enough for nobody' in sums


def test_auto_names_its_choice_its_reason_and_its_price(told):
    smooth = told("check", "config.toml")
    assert "mode: sealed, since the loss is smooth: nobody sees a score" in smooth
    assert "the price is five round trips a gradient" in smooth
    kinks = told("check", "config.toml", loss="hinge")
    assert "mode: sums, since sealed training does not do this" in kinks
    assert "the price is that label holders see scores" in kinks
    assert any(words in kinks for words in SEEN_IN_SUMS)


def test_train_ledger_audit_and_report_say_what_was_seen(told, tmp_path):
    # Nothing here depends on λ, scale or gap: these need few round trips.
    config = CONFIG.replace("[data]", '[data]\nscaling = "standard"')
    config = config.replace("lambda = 1e-2", "lambda = 1.0").replace("gap = 0.2", "gap = 0.5")
    done = told("train", "config.toml", "--record", config=config)
    assert "mode: sealed, since" in done
    assert "sizes, scalars of the whole run and the model" in done
    folder = tmp_path / "results" / "sealed"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["solver"] == "sealed"
    assert "Training was sealed" in (folder / "report.html").read_text()
    # No sum was opened that a ledger would have to count; it knows who took part.
    assert "569" in told("ledger", "ledger")
    audit = told("audit", str(folder))
    assert "It dealt the masks of sealed training" in audit
    assert "READABLE" not in audit
    of_party = told("audit", str(folder), "--party", "p1")
    assert "uniform" in of_party


MOMENTS = CONFIG.replace("[data]", '[data]\nscaling = "standard"').replace(
    "lambda = 1e-2", 'lambda = 1.0\nsecond_moments = ["hessian", "gram"]'
)
#: A few patients stand out in some columns, which min_batch would refuse.
AGREED = MOMENTS + "allow_second_moments = true\nmin_batch = 1\n"


def test_second_moments_are_told_before_a_run_and_after_it(told, tmp_path):
    said = told("train", "config.toml", mode="sealed", config=MOMENTS, code=2)
    assert "weft: party p1 refuses second_moments = ['hessian', 'gram'], which tell" in said
    assert not (tmp_path / "results").exists()
    before = told("check", "config.toml", mode="sealed", config=AGREED)
    assert "whoever gets the model also gets the Hessian of the mean loss and the" in before
    assert "allow_second_moments = true lets readers of the model have these" in before
    done = told("train", "config.toml", "--record", mode="sealed", config=AGREED)
    assert "the model with second moments of all columns, to who gets it" in done
    folder = tmp_path / "results" / "sealed"
    assert "whoever gets the model also got matrices" in (folder / "report.html").read_text()
    counted = told("ledger", "ledger", config=AGREED)
    assert "21 numbers in its model" in counted
    assert "hessian and gram opened" in counted
    audit = told("audit", str(folder), config=AGREED)
    assert "Readers of the model also got second moments (gram and hessian), sealed" in audit
    assert "READABLE" not in audit
    careful = AGREED.replace("allow_exposure = true\n", "")
    said = told("check", "config.toml", mode="sealed", config=careful, code=2)
    assert "refuses a Hessian beside another matrix of the same samples" in said
    gram = careful.replace('"hessian", "gram"', '"gram"')
    said = told("check", "config.toml", mode="sealed", config=gram, code=2)
    assert "an earlier run opened some, one of the two a Hessian" in said
    # Two matrices of 31 columns: twice as many are more than a fifth of 569 samples.
    ledger = Ledger(tmp_path / "ledger")
    for name in ("p1", "p2", "p3"):
        pages = ledger.book(name).read()
        pages.numbers["hessians"].numbers[:] = 0
        pages.numbers["models"].numbers[:] += 80
        ledger.book(name).write(pages)
    said = told("check", "config.toml", mode="sealed", config=gram, code=2)
    assert "earlier runs opened 62 numbers about each of its columns, and with 62 more" in said
    assert "opened 101 numbers about them, and with 21 more it would be over 113" in said


def test_check_and_train_refuse_moments_of_few_samples_alike(told):
    few = AGREED.replace("breast_cancer", "digits")
    for command in ("check", "train"):
        said = told(command, "config.toml", mode="sealed", config=few, code=2)
        assert "refuses second moments of so many columns over so few samples" in said
