"""Public files, private keys and sealed boxes, as they come from a disk."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(
    include=["weft.crypto.keys.public_keys_file", "weft.crypto.party_key_pairs"]
):
    from weft.crypto import party_key_pairs
    from weft.crypto.keys import public_keys_file as public

from harness import search

MINE = party_key_pairs.Identity.new()


def decode(data: bytes) -> None:
    """The first byte says what the rest claims to be."""
    if not data:
        return
    what, content = data[0] % 5, data[1:]
    if what == 0:
        try:
            found = public.PublicKeys.from_json(content)
        except (public.msgspec.MsgspecError, UnicodeDecodeError):
            return
        assert public.PublicKeys.from_json(found.to_json()) == found
    elif what == 1:
        party_key_pairs.Identity.from_private(party_key_pairs.Secret(content))
    elif what == 2:
        MINE.open(content)
    elif what == 3:
        MINE.public.verify(content[64:], content[:64])
    else:
        other = party_key_pairs.PublicIdentity.from_bytes(content)
        MINE.shared_with(other)
        other.seal(b"content")


def seeds() -> list[bytes]:
    members = {name: party_key_pairs.Identity.new().public for name in ("north", "south")}
    run = party_key_pairs.Secret.random()
    file = public.PublicKeys(members, public.print_of(run), "north").to_json()
    return [
        b"\0" + file,
        b"\1" + MINE.private().reveal(),
        b"\2" + MINE.public.seal(run),
        b"\3" + MINE.sign(b"content") + b"content",
        b"\4" + MINE.public.to_bytes(),
    ]


if __name__ == "__main__":
    search(decode, seeds())
