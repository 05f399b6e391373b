"""A federation's kits, and the command line."""

import shutil

import pytest
from kitted import FEDERATION, WEST, write

from weft.cli import main
from weft.network.kits import certificate_requests as requests
from weft.network.kits import certificates, provisioning
from weft.network.kits.certificate_requests import make_request, read_requests
from weft.network.kits.complete_kit_with_own_key import install
from weft.network.kits.federation_plan import read_plan
from weft.network.kits.provisioning import provision


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A federation whose site north made its own key; nobody changes anything in it."""
    folder = tmp_path_factory.mktemp("federation")
    (folder / "federation.toml").write_text(FEDERATION + WEST)
    (folder / "requests").mkdir()
    make_request("north", folder / "north-request")
    shutil.copy(folder / "north-request" / "north.csr", folder / "requests")
    plan = read_plan(write(folder / "first.toml", FEDERATION))
    provision(plan, folder / "kits", read_requests(folder / "requests"))
    install(folder / "kits" / "north.zip", folder / "north-request", folder / "north")
    return folder


@pytest.fixture(scope="session")
def key():
    """One key, for tests that make kits and look at something else."""
    return certificates.new_key()


@pytest.fixture
def quick(monkeypatch, key):
    """Kits whose keys are all the same, and cost nothing."""
    monkeypatch.setattr(provisioning, "new_key", lambda: key)
    monkeypatch.setattr(requests, "new_key", lambda: key)
    monkeypatch.setattr("nvflare.lighter.utils.generate_keys", lambda: (key, key.public_key()))


@pytest.fixture
def weft(capsys, monkeypatch, tmp_path):
    """Runs ``weft ARGUMENTS`` inside an empty folder; exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run
