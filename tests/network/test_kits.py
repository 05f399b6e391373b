"""Start-up kits: made whole or not at all, closed to others, each with its own name.

Outside judges: Python's own TLS (a handshake between two kits) and cryptography's check of chains.
"""

import errno
import json
import os
import shutil
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from kitted import (
    ANNA,
    FEDERATION,
    WEST,
    certificate_of,
    kit_of,
    refusal,
    sentence,
    shake_hands,
    tree,
    write,
)
from nvflare.lighter.utils import verify_cert_chain

from weft.network.kits import certificates, provisioning
from weft.network.kits.federation_plan import read_plan
from weft.network.kits.kit_folder import Kit
from weft.network.kits.provisioning import add_to, provision

# ── certificates ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "subject", "organisation"),
    [
        ("coordinator", "localhost", "coordinator"),
        ("north", "north", "north_clinic"),
        ("south", "south", "south_clinic"),
        (ANNA, ANNA, "north_clinic"),
    ],
)
def test_every_certificate_is_signed_by_the_authority_for_its_owner(
    place, name, subject, organisation
):
    kit = kit_of(place, name)
    certificate = certificate_of(kit)
    root = x509.load_pem_x509_certificate((place / "kits/ca/ca.crt").read_bytes())
    verify_cert_chain(certificate, [], root)
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now < now + timedelta(days=360)
    assert now + timedelta(days=360) < certificate.not_valid_after_utc < root.not_valid_after_utc
    assert certificates.name_of(certificate) == subject
    assert certificates.organisation_of(certificate) == organisation
    assert (kit / "startup/rootCA.pem").read_bytes() == (place / "kits/ca/ca.crt").read_bytes()


def test_the_coordinator_is_who_its_host_says(place):
    root = x509.load_pem_x509_certificate((place / "kits/ca/ca.crt").read_bytes())
    verifier = PolicyBuilder().store(Store([root])).build_server_verifier(x509.DNSName("localhost"))
    assert verifier.verify(certificate_of(place / "kits/coordinator"), [])


@pytest.mark.parametrize("name", ["north", "south", ANNA])
def test_kits_shake_hands_with_the_coordinator(place, name):
    server, client = Kit.open(place / "kits/coordinator"), Kit.open(kit_of(place, name))
    seen, host = shake_hands(server, client)
    assert seen["commonName"] == name
    assert host["commonName"] == "localhost"


def test_a_kit_of_another_federation_is_not_let_in(place, tmp_path, quick):
    provision(read_plan(write(tmp_path / "f.toml", FEDERATION)), tmp_path / "kits")
    with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_VERIFY_FAILED|UNKNOWN_CA"):
        shake_hands(Kit.open(place / "kits/coordinator"), Kit.open(tmp_path / "kits/south"))


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_was_made_on_a_site_is_nowhere_at_the_organiser(place):
    secret = [path for path, content in tree(place / "kits").items() if b"PRIVATE" in content]
    names = {str(path.relative_to(place / "kits")) for path in secret}
    assert names == {
        "ca/ca.key",
        "coordinator/startup/server.key",
        "south/startup/client.key",
        f"{ANNA}/startup/client.key",
    }
    assert b"PRIVATE" not in (place / "kits/north.zip").read_bytes()
    own = (place / "north-request/north.key").read_bytes()
    assert (place / "north/startup/client.key").read_bytes() == own


def test_only_the_owner_can_look_into_kits_authority_and_requests(place):
    for top in ("kits", "north", "north-request"):
        assert stat.S_IMODE((place / top).stat().st_mode) == 0o700
        for path in (place / top).rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kit: (kit / "startup/client.key").chmod(0o640), "chmod 600"),
        (lambda kit: kit.chmod(0o755), "chmod 700"),
        (lambda kit: (kit / "startup/client.key").unlink(), "has no key"),
        (lambda kit: (kit / "startup/client.crt").unlink(), "client.crt is missing"),
        (lambda kit: (kit / "startup/rootCA.pem").write_text("-"), "rootCA.pem is damaged"),
        (lambda kit: (kit / "startup/client.key").write_text("-"), "key is damaged"),
        (lambda kit: (kit / "startup/fed_client.json").write_text("{}"), "json is damaged"),
        (lambda kit: (kit / "startup/fed_client.json").unlink(), "is no start-up kit"),
        (lambda kit: (kit / "local/resources.json").unlink(), "has no local/resources.json"),
    ],
)
def test_a_kit_that_is_open_damaged_or_incomplete_is_not_started_from(
    place, tmp_path, change, words
):
    shutil.copytree(place / "kits/south", tmp_path / "south")
    change(tmp_path / "south")
    assert words in refusal(lambda: Kit.open(tmp_path / "south"))


def test_parties_keys_are_not_made_in_the_coordinators_kit(place, weft):
    for folder in ("", "keys", "weft/crypto/keys"):
        kit = place / "kits/coordinator" / folder
        said = sentence(weft("keys", "new", kit, "--party", "north"))
        assert "the coordinator must not have them" in said
    assert not (place / "kits/coordinator/keys").exists()


def test_a_kit_with_the_key_of_another_is_not_started_from(place, tmp_path):
    shutil.copytree(place / "kits/south", tmp_path / "south")
    shutil.copy(place / "north/startup/client.key", tmp_path / "south/startup/client.key")
    assert "not the key of the certificate" in refusal(lambda: Kit.open(tmp_path / "south"))


def test_a_kit_under_another_authority_is_not_started_from(place, tmp_path):
    shutil.copytree(place / "kits/south", tmp_path / "south")
    other = certificates.Authority.new("two clinics")
    (tmp_path / "south/startup/rootCA.pem").write_bytes(certificates.pem(other.certificate))
    assert "not signed by the authority" in refusal(lambda: Kit.open(tmp_path / "south"))


def test_an_expired_kit_says_since_when(place, tmp_path, monkeypatch, key, quick):
    monkeypatch.setattr(certificates, "KIT_DAYS", 1 / 86400 / 10)
    provision(read_plan(write(tmp_path / "f.toml", FEDERATION)), tmp_path / "kits")
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    assert f"expired on {day}" in refusal(lambda: expire(tmp_path / "kits/south"))


def expire(kit):
    while Kit.inspect(kit).expires > datetime.now(UTC):
        pass
    Kit.open(kit)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "kind"), [("coordinator", "coordinator"), ("north", "site"), (ANNA, "submitter")]
)
def test_a_kit_says_whose_it_is(place, name, kind):
    kit = Kit.open(kit_of(place, name), kind)
    assert (kit.kind, kit.name, kit.federation) == (kind, name, "two clinics")
    assert (kit.host, kit.port) == ("localhost", 18002)
    assert kit.key.is_file()
    assert kit.certificate.is_file()
    assert kit.authority.is_file()


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("north", "coordinator", "is a site's kit; weft serve needs the coordinator's"),
        ("coordinator", "site", "is the coordinator's kit; weft join needs a site's"),
        (ANNA, "site", "is a submitter's kit; weft join needs a site's"),
        ("south", "submitter", "is a site's kit; weft submit needs a submitter's"),
        ("ca", None, "is no start-up kit"),
        ("nowhere", None, "is no start-up kit"),
    ],
)
def test_a_kit_of_the_wrong_kind_is_refused_in_one_sentence(place, name, kind, words):
    assert words in refusal(lambda: Kit.open(kit_of(place, name), kind))


def test_the_command_says_what_a_kit_is(place, weft):
    code, out, _ = weft("federation", "kit", place / "north")
    assert code == 0
    assert "site 'north' in federation 'two clinics'" in out
    assert f"valid until {datetime.now(UTC).year + 1}" in out
    code, out, _ = weft("federation", "kit", place / "kits/coordinator", "--json")
    authority = json.loads(out)["authority"]
    assert authority in weft("federation", "kit", place / "north")[1]


# ── all or nothing ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("files", [1, 7, 20])
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, quick, files):
    written = []

    def full(path, content, original=provisioning.write_private):
        written.append(path)
        if len(written) > files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        original(path, content)

    monkeypatch.setattr(provisioning, "write_private", full)
    plan = read_plan(write(tmp_path / "federation.toml", FEDERATION))
    with pytest.raises(Exception, match=r"No space left on device.*nothing was changed"):
        provision(plan, tmp_path / "kits")
    assert len(written) == files + 1
    assert [path.name for path in tmp_path.iterdir()] == ["federation.toml"]


def test_nothing_is_overwritten(place, weft):
    before = tree(place)
    first, now = place / "first.toml", place / "federation.toml"
    out = ("--out", place / "kits")
    assert "is not empty" in sentence(weft("federation", "new", first, *out))
    assert "exists already" in sentence(weft("federation", "add", now, "south", *out))
    assert "exists already" in sentence(
        weft("federation", "request", "north", "--out", place / "north-request")
    )
    again = ("install", place / "kits/north.zip", "--request", place / "north-request")
    assert "exists already" in sentence(weft("federation", *again, "--out", place / "north"))
    assert tree(place) == before


# ── coming later ──────────────────────────────────────────────────────────────────────────────────


def test_a_site_that_comes_later_is_let_in_by_the_same_authority(place, tmp_path):
    shutil.copytree(place / "kits", tmp_path / "kits")
    before = tree(tmp_path / "kits")
    made = add_to(read_plan(place / "federation.toml"), tmp_path / "kits", ["west"])
    assert [kit.name for kit in made.kits] == ["west"]
    west = Kit.open(tmp_path / "kits/west", "site")
    seen, _ = shake_hands(Kit.open(place / "kits/coordinator"), west)
    assert seen["commonName"] == "west"
    after = tree(tmp_path / "kits")
    assert {path: content for path, content in after.items() if path in before} == before
    assert not [path for path in (tmp_path / "kits").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("old", "new", "name", "words"),
    [
        ("18002", "18003", "west", "has port = 18003, but"),
        ("two clinics", "three clinics", "west", "has name = 'three clinics', but"),
        ("two", "two", "east", "has no site or submitter 'east'"),
    ],
)
def test_a_site_is_added_to_the_same_federation_only(place, tmp_path, old, new, name, words):
    changed = write(tmp_path / "f.toml", (FEDERATION + WEST).replace(old, new, 1))
    before = tree(place / "kits")
    assert words in refusal(lambda: add_to(read_plan(changed), place / "kits", [name]))
    assert tree(place / "kits") == before


def test_without_the_authority_nobody_is_added(place, tmp_path):
    plan = read_plan(place / "federation.toml")
    assert "bring the authority's folder back" in refusal(lambda: add_to(plan, tmp_path, ["west"]))
    shutil.copytree(place / "kits/ca", tmp_path / "ca")
    (tmp_path / "ca/ca.key").write_bytes((place / "north-request/north.key").read_bytes())
    assert "is damaged" in refusal(lambda: add_to(plan, tmp_path, ["west"]))
