"""Secrets stay secret, and keys do what they promise."""

import copy
import hmac
import logging
import pickle
import traceback
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.crypto.keys import PartyKeys, ephemeral_keys
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError

CONTENT = bytes(range(100, 132))

#: RFC 7748, section 5: public keys whose shared points are all zero.
WEAK_POINTS = [bytes(32), b"\x01" + bytes(31)]


def forms(secret):
    """The ways in which a secret could be read in a text."""
    content = secret.reveal()
    return [
        content.hex(),
        content.hex().upper(),
        b64encode(content).decode().rstrip("="),
        repr(content)[2:-1],
        repr(list(content))[1:-1],
    ]


def private_parts(identity):
    """The two private keys of an identity, each on its own."""
    content = identity.private().reveal()
    return [Secret(content[:32]), Secret(content[32:])]


def told(error):
    """All that a crash report with the variables of every frame would print."""
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(report.format())


# ── Secret ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        format,
        lambda s: f"{s} {s!r} {s!s} {s:>80}",
        lambda s: "%s %r" % (s, s),  # noqa: UP031
        lambda s: f"{[s]} { ({'key': s}) }",
        lambda s: repr(PartyKeys("a", Identity.new(), s)),
    ],
)
def test_a_secret_shows_nothing(show):
    secret = Secret(CONTENT)
    text = show(secret)
    assert "Secret(…)" in text
    assert not [form for form in forms(secret) if form in text]


def test_a_logged_secret_shows_nothing(caplog):
    secret = Secret(CONTENT)
    logging.getLogger("test").warning("the secret is %s, %r", secret, secret)
    assert "Secret(…)" in caplog.text
    assert not [form for form in forms(secret) if form in caplog.text]


@pytest.mark.parametrize("thing", [Secret(CONTENT), Identity.new()])
@pytest.mark.parametrize("take", [pickle.dumps, copy.deepcopy, lambda s: pickle.dumps([s], 0)])
def test_secrets_are_never_pickled_or_copied(thing, take):
    with pytest.raises(TypeError, match="never pickled or copied") as stop:
        take(thing)
    assert not [form for form in forms(Secret(CONTENT)) if form in told(stop.value)]


def test_a_secret_has_no_other_way_out():
    secret = Secret(CONTENT)
    assert not hasattr(secret, "__dict__")
    for attempt in (bytes, hash, len, list):
        with pytest.raises(TypeError):
            attempt(secret)


def test_secrets_are_equal_when_their_contents_are():
    assert Secret(CONTENT) == Secret(CONTENT)
    assert Secret(CONTENT) != Secret(CONTENT[:-1])
    assert Secret(CONTENT) != CONTENT
    assert Secret.random() != Secret.random()
    assert len(Secret.random(48).reveal()) == 48


@given(st.binary(min_size=1, max_size=200), st.text(st.characters(codec="utf-8")))
def test_a_fingerprint_depends_on_secret_and_purpose(content, purpose):
    secret = Secret(content)
    shown = secret.fingerprint(purpose)
    assert len(shown) == 16
    assert int(shown, 16) >= 0
    assert shown == Secret(content).fingerprint(purpose)
    assert shown != secret.fingerprint(purpose + " too")
    assert shown != Secret(content + b"\x01").fingerprint(purpose)


def test_hkdf_agrees_with_an_implementation_by_hand():
    # RFC 5869 with no salt: PRK = HMAC(0…0, secret), T(1) = HMAC(PRK, info ‖ 1).
    info = b"\x00\x00\x00\x03pad" + b"run 1"
    prk = hmac.digest(bytes(32), CONTENT, "sha256")
    assert Secret(CONTENT).derive("pad", b"run 1").reveal() == hmac.digest(
        prk, info + b"\x01", "sha256"
    )


labels = st.text(st.characters(codec="utf-8"), max_size=12)


@given(st.binary(max_size=80), labels, labels, st.binary(max_size=12), st.binary(max_size=12))
def test_subkeys_differ_unless_label_and_context_are_the_same(content, a, b, x, y):
    secret = Secret(content)
    first, second = secret.derive(a, x), secret.derive(b, y)
    assert (first == second) == ((a, x) == (b, y))
    assert first != secret
    assert first == Secret(content).derive(a, x)


def test_a_label_and_its_context_do_not_run_into_each_other():
    secret = Secret(CONTENT)
    assert secret.derive("ab", b"c") != secret.derive("a", b"bc")


@given(st.integers(1, 255 * 32))
def test_subkeys_have_the_length_asked_for(length):
    assert len(Secret(CONTENT).derive("x", length=length).reveal()) == length


@pytest.mark.parametrize("length", [0, -1, 255 * 32 + 1])
def test_impossible_lengths_are_refused(length):
    with pytest.raises(ValueError, match="1 to 8160 bytes"):
        Secret(CONTENT).derive("x", length=length)


# ── Identity ──────────────────────────────────────────────────────────────────────────────────


@examples(25)
@given(st.binary(min_size=64, max_size=64), st.binary(min_size=64, max_size=64))
def test_both_sides_share_the_same_secret(one, other):
    a, b = Identity.from_private(Secret(one)), Identity.from_private(Secret(other))
    assert a.shared_with(b.public) == b.shared_with(a.public)
    assert len(a.shared_with(b.public).reveal()) == 32
    if a.public != b.public:
        assert a.shared_with(b.public) != a.shared_with(a.public)


def test_every_pair_shares_another_secret():
    a, b, c = Identity.new(), Identity.new(), Identity.new()
    shared = [a.shared_with(b.public), a.shared_with(c.public), b.shared_with(c.public)]
    assert len({secret.reveal() for secret in shared}) == 3


def test_an_identity_comes_back_from_its_private_part():
    identity = Identity.new()
    again = Identity.from_private(identity.private())
    assert again.public == identity.public
    assert again.open(identity.public.seal(b"for us")).reveal() == b"for us"
    identity.public.verify(b"ours", again.sign(b"ours"))


@pytest.mark.parametrize("length", [0, 32, 63, 65])
def test_a_private_part_of_another_length_is_refused(length):
    with pytest.raises(ProtocolError, match=f"has 64 bytes, not {length}"):
        Identity.from_private(Secret(bytes(length)))


@examples(25)
@given(st.binary(max_size=300))
def test_what_is_sealed_opens_at_its_recipient_only(content):
    recipient, other = Identity.new(), Identity.new()
    box = recipient.public.seal(content)
    assert recipient.open(box).reveal() == content
    assert box != recipient.public.seal(content)
    with pytest.raises(ProtocolError, match="does not open") as stop:
        other.open(box)
    assert not [f for part in private_parts(other) for f in forms(part) if f in told(stop.value)]


def test_a_secret_is_sealed_without_being_revealed():
    recipient, secret = Identity.new(), Secret.random()
    assert recipient.open(recipient.public.seal(secret)) == secret


@examples(25)
@given(st.data())
def test_a_changed_or_cut_box_does_not_open(data):
    recipient = Identity.new()
    box = recipient.public.seal(CONTENT)
    place = data.draw(st.integers(0, len(box) - 1))
    flipped = bytes([box[place] ^ data.draw(st.integers(1, 255))])
    for wrong in (box[:place] + flipped + box[place + 1 :], box[:place], box + b"\x00"):
        with pytest.raises(ProtocolError, match="does not open"):
            recipient.open(wrong)


@examples(25)
@given(st.binary(max_size=100), st.data())
def test_only_the_signed_content_has_the_signature(content, data):
    signer, other = Identity.new(), Identity.new()
    signature = signer.sign(content)
    signer.public.verify(content, signature)
    place = data.draw(st.integers(0, 63))
    changed = signature[:place] + bytes([signature[place] ^ 1]) + signature[place + 1 :]
    wrong = [
        (signer, content + b"\x00", signature),
        (signer, content, changed),
        (signer, content, signature[:place]),
        (signer, content[1:], signature + content[:1]),
        (other, content, signature),
    ]
    if not content:
        wrong.pop(3)
    for identity, said, under in wrong:
        with pytest.raises(ProtocolError, match="signature"):
            identity.public.verify(said, under)


def test_a_public_identity_travels_as_bytes():
    public = Identity.new().public
    assert PublicIdentity.from_bytes(public.to_bytes()) == public
    assert len(public.to_bytes()) == 64
    assert pickle.loads(pickle.dumps(public)) == public


@pytest.mark.parametrize("length", [0, 31, 32, 63, 65])
def test_public_keys_of_another_length_are_refused(length):
    with pytest.raises(ProtocolError, match="two keys of 32 bytes"):
        PublicIdentity.from_bytes(bytes(length))


def test_a_fingerprint_is_read_out_in_groups():
    first, second = Identity.new().public, Identity.new().public
    groups = first.fingerprint.split(" ")
    assert [len(group) for group in groups] == [4] * 8
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint in repr(first)


@pytest.mark.parametrize("point", WEAK_POINTS)
def test_a_weak_key_shares_and_seals_nothing(point):
    identity = Identity.new()
    weak = PublicIdentity(identity.public.signing, point)
    secrets = [Secret(CONTENT), *private_parts(identity)]
    for attempt in (identity.shared_with, lambda public: public.seal(Secret(CONTENT))):
        with pytest.raises(ProtocolError, match="no usable X25519 key") as stop:
            attempt(weak)
        assert not [f for secret in secrets for f in forms(secret) if f in told(stop.value)]


def test_an_identity_shows_its_public_fingerprint_only():
    identity = Identity.new()
    for text in (repr(identity), str(identity), f"{identity}"):
        assert text == f"Identity({identity.public.fingerprint})"
    assert not hasattr(identity, "__dict__")


def test_simulated_parties_share_a_run_and_nothing_else():
    keys = ephemeral_keys(["a", "b/..", ""])
    assert list(keys) == ["a", "b/..", ""]
    assert len({party.run.reveal() for party in keys.values()}) == 1
    assert len({party.identity.public for party in keys.values()}) == 3
    assert ephemeral_keys(["a"])["a"].run != keys["a"].run
