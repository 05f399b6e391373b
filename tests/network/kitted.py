"""What tests of start-up kits share: a small federation, and ways to look at kits."""

import json
import ssl

import pytest
from cryptography import x509

from weft.errors import ConfigError
from weft.network.kits.kit_folder import Kit

ANNA = "anna@north.example"
FEDERATION = f"""
name = "two clinics"
host = "localhost"
port = 18002

[[site]]
name = "north"
organisation = "north_clinic"

[[site]]
name = "south"
organisation = "south_clinic"

[[submitter]]
name = "{ANNA}"
organisation = "north_clinic"
"""
WEST = '[[site]]\nname = "west"\norganisation = "west_clinic"\n'


def write(path, text):
    path.write_text(text)
    return path


def sentence(outcome):
    """What a refusal says: one line on stderr, and nothing on stdout."""
    code, out, err = outcome
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


def refusal(work):
    """The one sentence with which something is refused."""
    with pytest.raises(ConfigError) as stop:
        work()
    assert "\n" not in str(stop.value)
    return str(stop.value)


def kit_of(place, name):
    return place / "north" if name == "north" else place / "kits" / name


def certificate_of(kit):
    return x509.load_pem_x509_certificate(Kit.inspect(kit).certificate.read_bytes())


def settings(kit, name="resources.json"):
    return json.loads((kit / "local" / name).read_text())


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shake_hands(server, client):
    """A mutual TLS handshake in memory; what each sees of the other."""
    inner = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inner.verify_mode = ssl.CERT_REQUIRED
    outer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, kit in ((inner, server), (outer, client)):
        context.load_cert_chain(kit.certificate, kit.key)
        context.load_verify_locations(kit.authority)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        inner.wrap_bio(up, down, server_side=True),
        outer.wrap_bio(down, up, server_hostname=client.host),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return [dict(field[0] for field in end.getpeercert()["subject"]) for end in ends]
