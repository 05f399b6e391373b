"""Columns that a study declares for all sites: the model of one process, to the bit."""

from __future__ import annotations

import tomllib

import msgspec
import numpy as np
import pytest
from member_sites import MemberSites

from weft.config.read_cells_of_new_samples import read_samples
from weft.config.read_config import read_config
from weft.crypto.keys import load_all, new_keys
from weft.data.columns.column_rules import ColumnRule, encode_rules
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation
from weft.federation.model import load_model
from weft.network.site_data_keys_and_consent import load_member
from weft.network.task_from_config import task_of
from weft.privacy.ledger.run_booking import Ledger

PARTIES = ("north", "south")
STUDY = """
name = "wards"
[data]
scaling = "standard"
[model]
lambda = 0.1
loss = "logistic"
[solver]
name = "lbfgs"
gap = 1e-2
[privacy]
matching = "hmac"
"""
RULES = """
[columns.ward]
kind = "category"
[columns.dose]
log = "1+x"
clip = [0, 100]
"""
POLICY = """
min_batch = 2
min_contributors = 1
allow_pairs = true
allow_lone_labels = true
allow_one_column = true
allow_exposure = true
allow_small_changes = true
"""


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(4)
    ids = [f"n{row:02}" for row in range(30)]
    north = [f"{i},{'AB'[r % 2]},{r % 5},{int(r % 3 == 0)}" for r, i in enumerate(ids)]
    south = [
        f"{i},{x:.3f},{z:.3f}" for i, (x, z) in zip(ids, rng.normal(size=(30, 2)), strict=True)
    ]
    (tmp_path / "north.csv").write_text("\n".join(["id,ward,dose,y", *north]))
    (tmp_path / "south.csv").write_text("\n".join(["id,age,height", *south]))
    (tmp_path / "policy.toml").write_text(POLICY)
    new_keys(tmp_path / "keys", PARTIES)
    return tmp_path


def sites_of(folder):
    keys = load_all(folder / "keys", PARTIES)
    sites = MemberSites(folder, keys)
    sites.members = {
        name: load_member(
            name, [folder / f"{name}.csv"], id_column="id", label="y" if name == "north" else None,
            keys=folder / "keys", ledger=Ledger(folder / "ledger"), policy=folder / "policy.toml",
        )
        for name in PARTIES
    }  # fmt: skip
    return sites


def task(folder, rules=RULES):
    path = folder / "study.toml"
    path.write_text(STUDY + rules)
    return task_of(read_config(path, deployed=True), PARTIES)


def in_one_process(folder):
    path = folder / "config.toml"
    parties = "".join(f'[[party]]\nname = "{n}"\nfile = "{n}.csv"\n' for n in PARTIES)
    data = '[data]\nid = "id"\nlabel = "y"'
    text = (STUDY + RULES).replace("[data]", data) + parties + "label = false\n"
    path.write_text(text)
    problem = read_config(path).problem()
    return Federation(problem.tiles, problem.preprocessing).train(problem.settings).model


def test_sites_train_the_model_of_one_process_and_predict_by_its_rules(files):
    sites_of(files).ask(task(files))
    expected = in_one_process(files)
    found = load_model(files / "saved" / "north" / "model.npz")
    assert sorted(found.features.tolist()) == ["age", "dose", "height", "ward=A", "ward=B"]
    assert found.features.tolist() == expected.features.tolist()
    assert found.coef.tobytes() == expected.coef.tobytes()
    # The site's model knows the rules of its own columns.
    tile = read_samples(files / "north.csv", found, party="north").tile
    assert sorted(tile.features.tolist()) == ["dose", "ward=A", "ward=B"]
    dose = tile.block[:, tile.features.tolist().index("dose")]
    assert np.array_equal(dose, np.log1p(np.arange(30) % 5))


def test_a_study_without_the_rule_is_refused_before_matching(files):
    with pytest.raises(WeftError, match=r"north \(its column 'ward' is not numeric"):
        sites_of(files).ask(task(files, rules=""))
    assert not (files / "saved").exists()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("range = [0, 3]", "set outside ="),
        ('log = "x"', "set clip with a first number above 0"),
        ('log = "1+x"\nrange = [0, 3]\noutside = "keep"', "set clip"),
        ("bins = 4", "list the numbers to cut at"),
        ("spline = 3", "list the numbers to cut at"),
        ('kind = "category"\nmap = { "4" = "0" }', "is about one site's file"),
        ('kind = "date"\nsince = "2020-01-01"\nformat = "%d"', "is about one site's file"),
    ],
)
def test_a_study_cannot_ask_sites_about_cells_by_its_rules(files, rule, words):
    """Neither the submitter's command nor a site takes such a rule, whatever the cells are."""
    with pytest.raises(ConfigError, match=words):
        task(files, f"[columns.dose]\n{rule}\n")
    rules = {"nobody has it": msgspec.convert(tomllib.loads(rule), ColumnRule)}
    lying = msgspec.structs.replace(task(files), columns=encode_rules(rules))
    with pytest.raises(WeftError, match=words):
        sites_of(files).ask(lying)


def test_numbers_beyond_the_range_of_a_study_are_nothing_for_others(files):
    """Whether a site has some: its answer is the same, and it tells no note."""
    (north,) = (m for m in sites_of(files).members.values() if m.name == "north")
    said = []
    for high in (3, 4):
        rules = f"[columns.ward]\nkind = 'category'\n[columns.dose]\nrange = [0, {high}]\n"
        said.append(north.training_tiles(task(files, rules + "outside = 'clip'\n"))[1])
    assert said == [[], []]
