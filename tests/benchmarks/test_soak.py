"""What the soak tells is measured right: growth, and connections that were cut."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import theilslopes

#: Looks that do not count.
WARM = 4
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def seen(pid, megabytes, children=()):
    return SimpleNamespace(
        pid=pid,
        memory_info=lambda: SimpleNamespace(rss=megabytes * 1e6),
        num_threads=lambda: 7,
        num_fds=lambda: 9,
        children=lambda recursive: children,
    )


def looked_at(pid, figures, first=1):
    from harness.process_watch import ProcessWatch

    watch = ProcessWatch(WARM)
    for run, rss in enumerate(figures, first):
        child = seen(pid + 1, rss - 1)
        found = watch.look(run, "site", seen(pid, 1, [child]))
        assert (found.pid, found.threads, found.descriptors) == (pid, 14, 18)
    return watch


def test_growth_is_the_slope_of_theil_and_sen_after_the_first_runs():
    draw = np.random.default_rng(1)
    figures = [500.0] * WARM + list(100 + 0.7 * np.arange(20) + draw.normal(size=20))
    watch = looked_at(1, figures)
    expected = 100 * theilslopes(figures[WARM:], np.arange(WARM, WARM + 20)).slope
    assert watch.growth("site", "rss") == pytest.approx(expected)
    assert watch.growth("site", "threads") == 0


def test_a_process_that_was_watched_briefly_tells_nothing():
    assert looked_at(1, [100.0] * 9).growth("site", "rss") is None


def test_a_cut_connection_ends_at_both_sides_and_the_next_one_works():
    from harness.cut_proxy import CutProxy

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        proxy = CutProxy(port, listener.getsockname()[1])
        try:
            for _ in range(2):
                outer = socket.create_connection(("127.0.0.1", port), timeout=5)
                inner, _ = listener.accept()
                inner.settimeout(5)
                outer.sendall(b"there")
                assert inner.recv(9) == b"there"
                inner.sendall(b"back")
                assert outer.recv(9) == b"back"
                assert proxy.cut() == 1
                assert outer.recv(9) == inner.recv(9) == b""
                outer.close()
                inner.close()
        finally:
            proxy.close()
