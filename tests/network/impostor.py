"""``weft`` for somebody who has a kit and says that he is somebody else. Not a test.

``python impostor.py NAME ARGUMENTS …`` runs ``weft ARGUMENTS`` with every certificate taken for
NAME's.
"""

import sys

from weft.cli import main
from weft.network.kits import kit_folder as reading

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    reading.name_of = lambda certificate: name
    main(arguments)
