"""What a process says to others: without the paths of its machine.

Errors that name files have another text for others (:class:`weft.errors.WeftError`). This holds for
all the rest too: a sentence that nobody thought of, or one of a library, shows nobody how somebody
else's disk is arranged. The process's own log has it as it was.
"""

from __future__ import annotations

import re

#: In the place of a path.
HIDDEN = "(a path, in its own log)"
#: A path of any system, from its root or somebody's home on; in quotes it goes to their end.
_ROOT = r"(?:~?/|[A-Za-z]:[\\/]|\\\\)"
_QUOTED = rf"(?P<quote>['\"`]){_ROOT}[^'\"`]*(?P=quote)"
#: Else up to a blank, and over words that go on with it, as in "/srv/two words/x".
_BARE = rf"(?<![\w.:/\\<]){_ROOT}[^\s'\"`,;()]+(?:[ ][^\s'\"`,;()]*[\\/][^\s'\"`,;()]+)*"
_PATH = re.compile(f"{_QUOTED}|{_BARE}")


def without_paths(sentence: str) -> str:
    """The sentence, with something else in the place of every absolute path."""
    return _PATH.sub(HIDDEN, sentence)
