"""``weft`` as it is, but for letters that are damaged on their way to and from a site. No test.

``python damaging.py NOTES PREFIX NUMBER ARGUMENTS …`` runs ``weft ARGUMENTS``. Once the site has
worked on exchange NUMBER, or a later one, of a run whose name begins with PREFIX, one bit of the
next letter is changed before the site gets it, and one bit of the reply after that. NOTES, a file,
says so.
"""

import sys
from pathlib import Path

from weft.cli import main
from weft.network.envelope_bytes import Work, decode_envelope
from weft.network.secure_session import SecureSite
from weft.network.site_answers_envelopes import Site


def flipped(packed):
    """The same bytes, but for one bit near their end."""
    changed = bytearray(packed)
    changed[-9] ^= 4
    return bytes(changed)


def damage(notes, prefix, number):
    """Stand between the engine and the site from now on."""
    answer, wire = Site.answer, SecureSite.answer
    due = ["letter", "reply"]
    # The site works in another process than the one that is connected.
    reached = notes.with_suffix(".reached")

    def inside(self, envelope):
        found = decode_envelope(envelope)
        if isinstance(found, Work) and found.run.startswith(prefix) and found.number >= number:
            reached.touch()
        return answer(self, envelope)

    def outside(self, envelope):
        # Not the first words of two processes, which meet anew where one did not understand.
        ordinary = envelope.startswith(b"L")
        if ordinary and due[:1] == ["letter"] and reached.exists():
            note(due.pop(0))
            return wire(self, flipped(envelope))
        reply = wire(self, envelope)
        if ordinary and reply.startswith(b"L") and due[:1] == ["reply"]:
            note(due.pop(0))
            return flipped(reply)
        return reply

    def note(what):
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    Site.answer, SecureSite.answer = inside, outside


if __name__ == "__main__":
    notes, prefix, number, *arguments = sys.argv[1:]
    damage(Path(notes), prefix, int(number))
    main(arguments)
