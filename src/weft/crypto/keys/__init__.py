"""A federation's keys on disk.

.. code-block:: text

    FOLDER/public.json                  names, public keys, and which run secret they share
    FOLDER/<party>/identity.key         the party's private keys; only its owner may read it
    FOLDER/<party>/run-<print>.box      the run secret, sealed to the party, signed by its maker

``public.json`` says which boxes count, and is written last: whoever reads the folder finds the
old run secret with all its boxes or the new one with all of its. A party's site needs its own
sub-folder and ``public.json``; the sub-folders of others may be elsewhere.
"""

from weft.crypto.keys.key_files import Access, KeyFiles, describe_keys
from weft.crypto.keys.load_keys import PartyKeys, check_keys, load_all, load_keys
from weft.crypto.keys.make_federation_keys import ephemeral_keys, new_keys
from weft.crypto.keys.public_keys_file import KeysError, PublicKeys, read_public

__all__ = [
    "Access",
    "KeyFiles",
    "KeysError",
    "PartyKeys",
    "PublicKeys",
    "check_keys",
    "describe_keys",
    "ephemeral_keys",
    "load_all",
    "load_keys",
    "new_keys",
    "read_public",
]
