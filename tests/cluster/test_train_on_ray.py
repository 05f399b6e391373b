"""``weft train --ray``: the run is that of one process, and what actors lack is refused first."""

from __future__ import annotations

import sys

import pytest
from test_hosted_federation import HostsHere

from weft.cluster import ray_hosts


@pytest.fixture
def parties(weft, tmp_path):
    weft("split", "breast_cancer", "--split", "grid", "--k", 2, "--q", 2, "--out", "parties")
    config = tmp_path / "parties" / "config.toml"
    config.write_text(config.read_text().replace("gap = 1e-2", "gap = 3e-1"))
    return "parties/config.toml"


@pytest.mark.usefixtures("no_pictures")
def test_actors_write_the_results_of_one_process(weft, parties, monkeypatch, tmp_path):
    started = []

    def hosts(groups, secret, *, address):
        started.append((address, [len(group) for group in groups]))
        return HostsHere(groups, secret)

    monkeypatch.setattr(ray_hosts, "RayHosts", hosts)
    for folder, ray in (("one", ()), ("many", ("--ray", "auto", "--actors", 3))):
        assert weft("train", parties, "--out", folder, "--quiet", *ray).code == 0
    assert started == [("auto", [1, 2, 1])]
    one, many = (tmp_path / folder / "model.npz" for folder in ("one", "many"))
    assert one.read_bytes() == many.read_bytes()
    assert (tmp_path / "many" / "report.html").exists()


def test_what_actors_lack_is_refused_before_any_work(weft, parties, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    cases = {
        "weft[ray]": (),
        "--resume and checkpoint_every out": ("--resume",),
        "give --actors": ("--threads", 2),
    }
    for said, options in cases.items():
        refused = weft("train", parties, "--ray", "local", "--out", "many", *options)
        assert refused.code == 2
        assert said in refused.err
    assert not (tmp_path / "many").exists()
    names = ("r1c1", "r1c2", "r2c1", "r2c2")
    weft("keys", "new", "keys", *(word for name in names for word in ("--party", name)))
    refused = weft("train", parties, "--ray", "local", "--keys", "keys")
    assert refused.code == 2
    assert "leave --keys and [keys] out" in refused.err
