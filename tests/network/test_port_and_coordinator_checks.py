"""Before the engine starts: ports, certificates and absent coordinators, each in one sentence."""

import shutil
import socket
import ssl
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kitted import FEDERATION, kit_of, refusal, write

from weft.network.kits import certificates
from weft.network.kits.federation_plan import read_plan
from weft.network.kits.kit_folder import Kit
from weft.network.kits.provisioning import provision
from weft.network.nvflare_processes import port_and_coordinator_checks as doors
from weft.network.nvflare_processes.port_and_coordinator_checks import (
    Unreachable,
    check_coordinator,
    check_port_free,
    wait_for_coordinator,
)


@contextmanager
def coordinator(kit):
    """Somebody who listens with a coordinator's certificate, and insists on one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(kit.certificate, kit.key)
    context.load_verify_locations(kit.authority)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over = threading.Event()

        def serve():
            while not over.is_set():
                try:
                    raw, _ = listener.accept()
                    raw.settimeout(2.0)
                    with context.wrap_socket(raw, server_side=True) as tls:
                        tls.sendall(b"words")
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


def open_kit(place, name, port):
    return replace(Kit.open(kit_of(place, name)), port=port)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("name", ["north", "south", "anna@north.example"])
def test_kits_of_the_federation_are_let_in(place, name):
    with coordinator(Kit.open(kit_of(place, "coordinator"))) as port:
        check_coordinator(open_kit(place, name, port))


def test_nobody_there_is_told_apart_from_being_refused(place):
    kit = open_kit(place, "south", free_port())
    with pytest.raises(Unreachable, match="cannot be reached") as found:
        check_coordinator(kit)
    assert str(kit.port) in str(found.value)


def test_a_coordinator_that_comes_later_is_waited_for(place, monkeypatch):
    monkeypatch.setattr(doors, "_PAUSE", 0.01)
    kit, told = open_kit(place, "south", 1), []
    tries = iter([Unreachable("not yet"), Unreachable("not yet"), None])

    def knocking(_):
        error = next(tries)
        if error is not None:
            raise error

    monkeypatch.setattr(doors, "check_coordinator", knocking)
    wait_for_coordinator(kit, 5.0, told.append)
    assert told == ["waiting up to 5 s: not yet"]


def test_a_coordinator_of_another_federation_is_not_trusted(place, tmp_path, quick):
    plan = read_plan(write(tmp_path / "other.toml", FEDERATION))
    provision(plan, tmp_path / "kits")
    with coordinator(Kit.open(tmp_path / "kits" / "coordinator")) as port:
        said = refusal(lambda: check_coordinator(open_kit(place, "south", port)))
    assert "does not trust" in said


@pytest.mark.parametrize("who", ["coordinator", "north"])
def test_a_kit_with_another_address_reaches_nobody_but_its_own_coordinator(place, who, quick):
    """Somebody changed it on its way: there listens a member, or a relay to the coordinator."""
    with coordinator(Kit.open(kit_of(place, who))) as port:
        kit = open_kit(place, "south", port)
        # A member listens under the right name; the coordinator's certificate is for that name.
        changed = kit if who == "north" else replace(kit, host="127.0.0.1")
        said = refusal(lambda: check_coordinator(changed))
    assert "shows a certificate that this kit does not trust" in said


@pytest.mark.parametrize(
    ("days", "words"), [(1, "is not valid yet"), (-400, "is not valid any more")]
)
def test_a_clock_that_is_wrong_is_told_apart_from_another_federation(
    place, tmp_path, key, monkeypatch, days, words
):
    """The coordinator's certificate was made at another time than this machine has."""

    class Elsewhen(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    monkeypatch.setattr(certificates, "datetime", Elsewhen)
    authority = certificates.Authority.new("three clinics")
    made = authority.issue(key.public_key(), "localhost", "org", host="localhost")
    monkeypatch.undo()
    parts = {
        "certificate": made.public_bytes(Encoding.PEM),
        "authority": authority.certificate.public_bytes(Encoding.PEM),
        "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    for name, content in parts.items():
        (tmp_path / name).write_bytes(content)
    # The server trusts whomever it likes.
    own = Kit.open(kit_of(place, "south"))
    paths = {name: tmp_path / name for name in parts}
    with coordinator(SimpleNamespace(**{**paths, "authority": own.authority})) as port:
        shown = {"certificate": own.certificate, "key": own.key, "path": own.path}
        asking = SimpleNamespace(**{**paths, **shown}, host="localhost", port=port)
        said = refusal(lambda: check_coordinator(asking))
    assert words in said
    assert "set the clock" in said
    assert "not that of your federation" not in said


def test_a_certificate_of_another_federation_is_refused_by_the_coordinator(place, tmp_path, quick):
    plan = read_plan(write(tmp_path / "other.toml", FEDERATION))
    provision(plan, tmp_path / "kits")
    stranger = tmp_path / "kits" / "south"
    # It knows the right coordinator, and shows a certificate that this one never signed.
    shutil.copy(Kit.open(kit_of(place, "south")).authority, stranger / "startup" / "rootCA.pem")
    with coordinator(Kit.open(kit_of(place, "coordinator"))) as port:
        said = refusal(lambda: check_coordinator(replace(Kit.inspect(stranger), port=port)))
    assert "refuses the certificate" in said


def test_a_port_that_somebody_has_is_not_served_on(place):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = refusal(lambda: check_port_free(open_kit(place, "coordinator", port)))
    assert f"port {port}" in said
    assert "taken" in said
    check_port_free(open_kit(place, "coordinator", port))


@pytest.mark.parametrize("heard", [True, False], ids=["closed", "reset"])
def test_a_door_with_nobody_behind_it_is_no_refusal(place, heard):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close():
            raw, _ = listener.accept()
            # What was said and not heard makes the end a reset.
            raw.recv(4096, 0 if heard else socket.MSG_PEEK)
            raw.close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises(Unreachable, match="connection was closed"):
            check_coordinator(open_kit(place, "north", listener.getsockname()[1]))
        thread.join()
