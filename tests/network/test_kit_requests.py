"""Keys that stay where they were made, federation.toml, and what the commands say."""

import json
import shutil
import zipfile
from contextlib import nullcontext

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from kitted import (
    ANNA,
    FEDERATION,
    refusal,
    sentence,
    write,
)
from nvflare.apis.utils.format_check import name_check

from weft.errors import ConfigError
from weft.network.kits import certificates
from weft.network.kits.certificate_requests import make_request, read_requests
from weft.network.kits.complete_kit_with_own_key import install
from weft.network.kits.federation_plan import read_plan
from weft.network.kits.provisioning import provision

# ── requests ──────────────────────────────────────────────────────────────────────────────────────


def test_a_kit_is_installed_with_its_own_request_only(place, tmp_path, quick):
    make_request("north", tmp_path / "other-key")
    make_request("south", tmp_path / "south-request")
    archive = place / "kits/north.zip"
    assert "another key" in refusal(
        lambda: install(archive, tmp_path / "other-key", tmp_path / "k")
    )
    said = refusal(lambda: install(archive, tmp_path / "south-request", tmp_path / "k"))
    assert "the kit of 'north', but the request was made for 'south'" in said
    assert "has 0 keys" in refusal(lambda: install(archive, tmp_path, tmp_path / "k"))
    assert not (tmp_path / "k").exists()


def test_an_archive_writes_nowhere_else(place, tmp_path):
    bad = tmp_path / "bad.zip"
    shutil.copy(place / "kits/north.zip", bad)
    with zipfile.ZipFile(bad, "a") as archive:
        archive.writestr("../outside", "x")
    said = refusal(lambda: install(bad, place / "north-request", tmp_path / "k"))
    assert "'../outside', which belongs into no kit" in said
    bad.write_bytes((place / "kits/north.zip").read_bytes()[:500])
    said = refusal(lambda: install(bad, place / "north-request", tmp_path / "k"))
    assert "is damaged or no kit" in said
    assert [path.name for path in tmp_path.iterdir()] == ["bad.zip"]


def request_of(name, key):
    return certificates.pem(certificates.new_request(key, name))


def test_requests_that_do_not_fit_are_refused(tmp_path, key):
    assert "has no signing requests" in refusal(lambda: read_requests(tmp_path))
    first = tmp_path / "a.csr"
    first.write_bytes(b"-")
    assert "no signing request" in refusal(lambda: read_requests(tmp_path))
    first.write_bytes(request_of("north", rsa.generate_private_key(65537, 1024)))
    assert "no RSA key of 2048" in refusal(lambda: read_requests(tmp_path))
    first.write_bytes(request_of("north", ec.generate_private_key(ec.SECP256R1())))
    assert "no RSA key of 2048" in refusal(lambda: read_requests(tmp_path))
    first.write_bytes(request_of("north", key))
    shutil.copy(first, tmp_path / "b.csr")
    assert "two signing requests of 'north'" in refusal(lambda: read_requests(tmp_path))
    plan = read_plan(write(tmp_path / "f.toml", FEDERATION))
    strange = {"east": key.public_key()}
    said = refusal(lambda: provision(plan, tmp_path / "kits", strange))
    assert "signing request of 'east', for whom no kit" in said


def test_a_request_cannot_name_a_role_or_an_organisation(tmp_path, key, quick):
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "north"),
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "south_clinic"),
            x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, "super"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = builder.sign(key, certificates.hashes.SHA256())
    (tmp_path / "a.csr").write_bytes(certificates.pem(signed))
    plan = read_plan(write(tmp_path / "f.toml", FEDERATION))
    provision(plan, tmp_path / "kits", read_requests(tmp_path))
    with zipfile.ZipFile(tmp_path / "kits/north.zip") as archive:
        found = x509.load_pem_x509_certificate(archive.read("startup/client.crt"))
    assert found.subject.rfc4514_string() == "O=north_clinic,CN=north"


# ── federation.toml and the commands ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "two clinics"', "", "the federation needs name, such as name = "),
        ('organisation = "south_clinic"', "", "site 'south' needs organisation, such as"),
        (
            "port = 18002",
            "port = 0",
            "port = 0 is out of range; give a whole number from 1 to",
        ),
        ("port = 18002", 'port = "x"', "port: expected a whole number"),
        ("port = 18002", "prt = 1", "no key 'prt' (did you mean 'port'?)"),
        ('"localhost"', '"local host"', "is no name or address of a host"),
        ('"north"', '"nörth"', "site 'nörth' cannot be called so"),
        ('"north"', '"server"', "cannot be called 'server'"),
        ('"north"', '"South"', "two of them are called 'south'"),
        ('"north_clinic"', '"north clinic"', "has organisation = 'north clinic'"),
        (f'"{ANNA}"', '"anna"', "submitter 'anna' cannot be called so"),
        (FEDERATION, FEDERATION.split("[[")[0] + "[site]", "write [[site]] with two brackets"),
        ("[[submitter]]", "[[site]]", f"site '{ANNA}' cannot be called so"),
        ("two clinics", "x" * 65, "must be 1 to 64 printable"),
        ('host = "localhost"', 'host = "localhost"\nroster = "r.json"', "there is no roster"),
        ("name", "=", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(weft, tmp_path, old, new, words):
    text = FEDERATION.replace(old, new, 1)
    said = sentence(weft("federation", "new", write(tmp_path / "federation.toml", text)))
    assert words in said
    assert "federation.toml" in said
    assert [path.name for path in tmp_path.iterdir()] == ["federation.toml"]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("client", ["north", "n-1_x"], ["nörth", "a b", "a.b", ""]),
        ("admin", [ANNA, "a.b+c@x.y.org"], ["anna", "anna@x", "@x.org"]),
        ("host_name", ["localhost", "10.0.0.1", "a-b.example.org"], ["a b", "-a.org", ""]),
    ],
)
def test_names_are_those_that_the_engine_takes(tmp_path, kind, good, bad):
    """Both must agree: what we let pass would stop the engine, what we refuse could have served."""
    place = {"client": '"north"', "admin": f'"{ANNA}"', "host_name": '"localhost"'}[kind]
    for name in (*good, *bad):
        text = FEDERATION.replace(place, json.dumps(name, ensure_ascii=False), 1)
        path = write(tmp_path / "federation.toml", text)
        refused, _ = name_check(name, kind)
        assert refused == (name in bad)
        with pytest.raises(ConfigError) if refused else nullcontext():
            read_plan(path)


def test_sites_must_be_members_of_a_signed_roster(tmp_path, weft):
    keys = tmp_path / "keys"
    names = [part for name in ("north", "south", "west") for part in ("--party", name)]
    assert weft("keys", "new", keys, *names)[0] == 0
    assert weft("federation", "draft", "roster.json", "--keys", keys)[0] == 0
    text = FEDERATION.replace("port =", 'roster = "roster.json"\nport =')
    path = write(tmp_path / "federation.toml", text)
    assert "did not sign" in refusal(lambda: read_plan(path))
    for name in ("north", "south", "west"):
        signed = weft(
            *("federation", "sign", "roster.json", "--keys", keys), "--party", name, "--yes"
        )
        assert signed[0] == 0
    assert read_plan(path).missing == ("west",)
    write(path, text.replace('"south"', '"east"'))
    assert "site 'east' is no member of the roster" in refusal(lambda: read_plan(path))


def test_the_commands_say_what_is_secret_and_what_comes_next(weft, tmp_path, quick):
    write(tmp_path / "federation.toml", FEDERATION)
    (tmp_path / "requests").mkdir()
    code, out, _ = weft("federation", "request", "north", "--out", "north-request")
    assert code == 0
    assert "send north-request/north.csr" in out
    shutil.copy("north-request/north.csr", "requests")
    code, out, _ = weft("federation", "new", "federation.toml", "--requests", "requests")
    assert code == 0
    kits = {part.split(" ")[0]: part for part in out.split("\n\n")}
    assert "SECRET" in kits["kits/south"]
    assert "weft join kits/south" in kits["kits/south"]
    assert "SECRET" not in kits["kits/north.zip"]
    assert "weft federation install north.zip --request FOLDER" in kits["kits/north.zip"]
    assert "weft serve kits/coordinator" in kits["kits/coordinator"]
    assert f"weft submit kits/{ANNA} CONFIG.toml" in kits[f"kits/{ANNA}"]
    assert "kits/ca decides who takes part: it is secret; back it up" in out
    code, out, _ = weft(
        *("federation", "install", "kits/north.zip", "--request", "north-request"), "--out", "north"
    )
    assert code == 0
    assert f"next: weft join {tmp_path / 'north'}" in out
