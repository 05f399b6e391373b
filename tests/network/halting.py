"""``weft`` as it is, but for a site that stands still at a chosen moment of a run. No test.

``python halting.py ORDER ARGUMENTS …`` runs ``weft ARGUMENTS``. ORDER is a file with the name of a
phase (`rehearsed_deaths.PHASES`): at the next letter of that phase the site renames it to
ORDER.reached, and goes on when that file is gone. So whoever is to die can be killed in between,
however fast the machine is.
"""

import sys
import time
from pathlib import Path

from rehearsed_deaths import phase_of

from weft.cli import main
from weft.network.site_answers_envelopes import Site


def halt(order):
    """Stand between the site and its letters from now on."""
    answer, reached = Site.answer, reached_by(order)

    def halting(self, envelope):
        if order.exists() and phase_of(envelope) == order.read_text():
            order.rename(reached)
            while reached.exists():
                time.sleep(0.02)
        return answer(self, envelope)

    Site.answer = halting


def reached_by(order):
    return order.with_suffix(".reached")


if __name__ == "__main__":
    order, *arguments = sys.argv[1:]
    halt(Path(order))
    main(arguments)
