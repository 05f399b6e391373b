"""Parties that hosts play train to the bits of one process, and hosts may fail as parties may."""

from __future__ import annotations

import pickle
from functools import partial
from operator import attrgetter

import numpy as np
import pytest
from msgspec.structs import replace

from weft import Federation, Settings
from weft.cluster.hosted_federation import HostedFederation
from weft.cluster.party_host import PartyHost
from weft.cluster.ray_hosts import RayHosts
from weft.crypto.keys import ephemeral_keys
from weft.data import SPLITS, load
from weft.errors import ConfigError, WeftError
from weft.protocol import Failure
from weft.report.majority_class import labels_by_id, majority_share
from weft.solvers.hyfdca.messages import WEIGHTS

SETTINGS = Settings(loss="logistic", lam=1e-2, solver="hyfdca", iterations=6, participation=0.5)


class HostsHere:
    """Hosts in this process; all that crosses is pickled, as on the way to another."""

    def __init__(self, groups, run_secret, fails=()):
        groups = pickle.loads(pickle.dumps(groups))
        self._hosts = [PartyHost(group, run_secret) for group in groups]
        self.fails, self.closed, self.asked, self.began = dict(fails), False, [], False

    def identities(self):
        return {name: key for host in self._hosts for name, key in host.identities().items()}

    def ask(self, host, letter):
        self.asked.append(host)
        self.began |= any(phase == WEIGHTS.name for phase, _ in letter)
        return host, pickle.dumps(letter)

    def wait(self, asked, seconds):
        host, letter = asked
        if host in self.fails and self.began:
            return Failure(self.fails[host], "its host says so")
        return pickle.loads(pickle.dumps(self._hosts[host].exchange(pickle.loads(letter))))

    def look(self, host, what):
        return pickle.loads(pickle.dumps(self._hosts[host].look(pickle.loads(pickle.dumps(what)))))

    def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def split():
    return SPLITS["grid"](load("breast_cancer"), k=2, q=2).parties


@pytest.fixture(scope="module")
def local(split):
    federation = Federation(split, record=True)
    return federation, federation.train(SETTINGS)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_hosts_come_to_the_same_bits(split, local, count):
    alone, expected = local
    with HostedFederation(split, start_hosts=HostsHere, count=count, record=True) as federation:
        trained = federation.train(SETTINGS)
        hosts = federation._hosts
        assert set(hosts.asked) == set(range(min(count, len(split))))
        np.testing.assert_array_equal(trained.model.coef, expected.model.coef)
        assert trained.result.certificate == expected.result.certificate
        assert trained.meter.round_trips == expected.meter.round_trips
        both = (trained.meter.phases, expected.meter.phases)
        ours, theirs = ({n: (c.calls, c.bytes_down) for n, c in found.items()} for found in both)
        assert ours == theirs
        crossed = [(entry.phase, entry.party) for entry in trained.channel.transcript]
        assert crossed == [(entry.phase, entry.party) for entry in expected.channel.transcript]
        shares = (majority_share(f.look(labels_by_id).values()) for f in (federation, alone))
        assert len(set(shares)) == 1
        assert list(federation.look(attrgetter("name"))) == list(split)
        assert trained.encryption.parties.encrypted == expected.encryption.parties.encrypted
    assert hosts.closed


@pytest.mark.parametrize("kind", ["failed", "late"])
def test_a_host_that_is_gone_takes_its_parties_along(split, kind):
    start = partial(HostsHere, fails={1: kind})
    with HostedFederation(split, start_hosts=start, count=2) as federation:
        trained = federation.train(replace(SETTINGS, patience=0.1))
    assert set(trained.result.gone) == set(list(split)[2:])


def test_a_host_that_refuses_ends_the_run(split):
    start = partial(HostsHere, fails={1: "refused"})
    with (
        HostedFederation(split, start_hosts=start, count=2) as federation,
        pytest.raises(WeftError, match="its host says so"),
    ):
        federation.train(SETTINGS)


def test_keys_stay_where_they_are(split):
    with pytest.raises(ConfigError, match="keys do not leave"):
        HostedFederation(split, start_hosts=HostsHere, count=2, keys=ephemeral_keys(tuple(split)))
    with pytest.raises(ConfigError, match="0 processes"):
        HostedFederation(split, start_hosts=HostsHere, count=0)


@pytest.mark.release
def test_actors_of_a_ray_cluster_come_to_the_same_bits(split, local):
    pytest.importorskip("ray")
    start = partial(RayHosts, address="local")
    with HostedFederation(split, start_hosts=start, count=2) as federation:
        trained = federation.train(SETTINGS)
        assert not federation.parties
        assert list(federation.look(attrgetter("name"))) == list(split)
    np.testing.assert_array_equal(trained.model.coef, local[1].model.coef)
