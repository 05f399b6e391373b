"""A small federation whose names try to break out of a page."""

import numpy as np

from weft import Tile

HOSTILE = "</script><script>alert('party')</script>"
FEATURE = '"><img src=x onerror=alert(1)> & <!-- café\u2028'


def federation():
    """Three parties with overlaps, one of them with two tiles, and names that try to break out."""
    rng = np.random.default_rng(3)
    ids = np.array([f"s{number}" for number in range(90)], dtype=object)
    truth = np.where(rng.random(90) < 0.5, "<b>yes", "no & never")
    values = rng.normal(size=(90, 8)) + 0.7 * (truth == "<b>yes")[:, None]
    names = np.array([FEATURE, *"bcdefgh"], dtype=object)

    def tile(rows, columns):
        where = np.ix_(rows, columns)
        return Tile.make(ids[rows], names[columns], values[where], labels=truth[rows])

    everything = np.arange(90)
    return {
        HOSTILE: (tile(everything[:60], [0, 1, 2]),),
        "split": (tile(everything[:30], [3, 4]), tile(everything[30:], [4, 5, 6])),
        "late": (tile(everything[45:], [1, 2, 7]),),
    }
