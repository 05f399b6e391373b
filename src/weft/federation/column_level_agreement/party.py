"""A party's side of declared columns: tokens and locked lists out, levels in, then numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np

from weft.array_types import Ints
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.crypto.secret_bytes import Secret
from weft.data.blank_cells import settle_missing
from weft.data.columns.column_agreement import (
    Levels,
    common_bytes,
    interactions_of,
    join_levels,
    other_writings,
    own_levels,
    rules_of,
    settle_columns,
)
from weft.data.columns.column_rules import PLAIN, rule_bytes
from weft.data.columns.table_transformation import Transformation
from weft.data.tile import MissingPolicy, Tile
from weft.errors import DataError, ProtocolError
from weft.federation.column_level_agreement.messages import (
    DIFFERENT,
    JOIN_LEVELS,
    LIST_COLUMNS,
    TAKE_LEVELS,
    ColumnsReply,
    ColumnsRequest,
    DifferentRequest,
    JoinLevelsReply,
    JoinLevelsRequest,
    TakeLevelsRequest,
)
from weft.matching.encrypted_level_lists import (
    NONCE,
    LevelList,
    agreed_key,
    digests,
    list_key,
    lock_levels,
    open_levels,
)
from weft.matching.id_and_name_forms import normal_features
from weft.matching.tokens import tokens_of
from weft.protocol import Answer, Nothing, answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import Boxes

_NAMED = 5


@dataclass(frozen=True)
class Settled:
    """A party's tables as numbers.

    Attributes
    ----------
    bindings
        Per column that a declared one became, what else its token depends on: holders that declare
        it otherwise, or were told other levels, have another column.
    remarks
        What became of cells that no rule foresaw, for the owner's eyes.
    """

    tiles: tuple[Tile, ...]
    transformation: Transformation
    bindings: Mapping[str, bytes]
    remarks: tuple[str, ...]


class ColumnsParty:
    """One party's part in the phases ``columns.…``.

    Parameters
    ----------
    least
        How many of its samples must have a level that it names to others.
    missing
        What becomes of blank cells that no rule fills.
    settle
        Takes the tables, once they are numbers.

    Attributes
    ----------
    declares
        Whether it has columns that are not numbers yet.
    """

    def __init__(
        self,
        name: str,
        tiles: Sequence[Tile],
        keyring: Keyring,
        draws: RandomnessLog,
        *,
        least: int,
        missing: MissingPolicy,
        settle: Callable[[Settled], None],
    ) -> None:
        self._name, self._tiles, self._keyring, self._draws = name, tiles, keyring, draws
        self._least, self._missing, self._settle = least, missing, settle
        self.declares = any(tile.declared is not None for tile in tiles)
        #: Columns in the order of their tokens, and of its open categories the token and the list.
        self._order: list[str] = []
        self._lists: dict[str, tuple[int, bytes]] = {}
        self._listed = self._taken = self._complained = False

    def answers(self) -> dict[str, Answer]:
        return answers(
            answer(LIST_COLUMNS, self._list),
            answer(DIFFERENT, self._name_columns),
            answer(JOIN_LEVELS, self._join),
            answer(TAKE_LEVELS, self._take),
        )

    # ── tokens and lists ──────────────────────────────────────────────────────────────────

    def _list(self, message: ColumnsRequest) -> ColumnsReply:
        if self._listed:
            # Tokens of two questions could be compared.
            raise ProtocolError(f"party {self._name} tells its columns once in a run")
        self._listed = True
        self._keyring.take_company(message.company)
        secret = self._keyring.bound_secret("weft columns")
        rules = rules_of(self._tiles)
        names = _normal(rules)
        encoded = [name.encode() for name in names.values()]
        token = dict(zip(rules, tokens_of(encoded, secret, "names").tolist(), strict=True))
        said = [names[name].encode() + b"\x00" + common_bytes(self._tiles, name) for name in rules]
        of_rule = dict(zip(rules, tokens_of(said, secret, "rules").tolist(), strict=True))
        self._order = sorted(rules, key=lambda name: token[name])
        for number, name in enumerate(n for n in self._order if rules[n].open):
            own = own_levels(self._tiles, name, self._least)
            nonce = self._draws.random(f"levels {number}", NONCE)
            key = list_key(self._level_secret(), names[name])
            box = lock_levels(LevelList(own.names, own.rare), key, nonce)
            self._lists[name] = (token[name], box)
        pairs = sorted(
            (min(token[a], token[b]), max(token[a], token[b]))
            for a, b in interactions_of(self._tiles)
        )
        return ColumnsReply(
            names=np.array([token[name] for name in self._order], np.uint64),
            rules=np.array([of_rule[name] for name in self._order], np.uint64),
            left=np.array([pair[0] for pair in pairs], np.uint64),
            right=np.array([pair[1] for pair in pairs], np.uint64),
            open=np.array([token for token, _ in self._lists.values()], np.uint64),
            levels=Boxes.of([box for _, box in self._lists.values()]),
        )

    def _level_secret(self) -> Secret:
        return self._keyring.bound_secret("weft levels")

    def _name_columns(self, message: DifferentRequest) -> Nothing:
        """Tell its owner which columns another holder declares otherwise."""
        if not self._order or self._complained:
            raise ProtocolError(f"party {self._name} is asked for columns once, after its tokens")
        self._complained = True
        places: Ints = message.places
        if (places < 0).any() or (places >= len(self._order)).any():
            raise malformed("places", "names columns that there are not")
        names = sorted(self._order[place] for place in places.tolist())
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        # Names of columns are for the owner's log alone.
        raise DataError(
            ", ".join(repr(name) for name in names[:_NAMED]) + more,
            told="its log names the columns",
        )

    # ── levels ────────────────────────────────────────────────────────────────────────────

    def _join(self, message: JoinLevelsRequest) -> JoinLevelsReply:
        """Join the lists of all holders of its own categories, without knowing whose they are."""
        boxes, at, agreed = message.lists.cut(), 0, []
        counts = message.counts.tolist()
        if len(counts) != len(message.names) or min(counts, default=1) < 1:
            raise malformed("counts", "does not say of how many parties the lists are")
        if sum(counts) != len(boxes) or len(set(message.names.tolist())) < len(counts):
            raise malformed("lists", "are not those of the categories named")
        secret = self._level_secret()
        for number, (token, count) in enumerate(zip(message.names.tolist(), counts, strict=True)):
            lists, at = boxes[at : at + count], at + count
            name = self._own_category(token)
            if self._lists[name][1] not in lists:
                raise ProtocolError(
                    f"party {self._name} joins lists of levels together with its own alone"
                )
            normal = _normal([name])[name]
            found = [open_levels(box, list_key(secret, normal)) for box in lists]
            joined = join_levels([Levels(one.names, one.rare) for one in found])
            if not message.confirmed:
                self._refuse_two_writings(name, joined)
            box = LevelList(joined.names, joined.rare, digests(lists))
            nonce = self._draws.random(f"agreed levels {number}", NONCE)
            agreed.append(lock_levels(box, agreed_key(secret, normal), nonce))
        return JoinLevelsReply(levels=Boxes.of(agreed))

    def _own_category(self, token: int) -> str:
        for name, (own, _) in self._lists.items():
            if own == token:
                return name
        raise ProtocolError(
            f"party {self._name} was asked about a category that it has not listed; stop this run"
        )

    @staticmethod
    def _refuse_two_writings(name: str, levels: Levels) -> None:
        others = other_writings(levels.names)
        if others:
            pairs = ", ".join(f"{one!r} and {level!r}" for level, one in others.items())
            rule = ", ".join(f'"{level}" = "{one}"' for level, one in others.items())
            raise DataError(
                f"column {name!r} has levels that differ only in their writing and would count as "
                f"two: {pairs}; say map = {{ {rule} }} in columns of the party that has them, or "
                'set confirmed = ["levels"] in [data] if that is meant',
                # Levels are for holders of the column.
                told="a category has two levels that differ only in case, accents or blanks, and "
                "would count as two; the log of a site that holds it names them: map one to the "
                'other there, or set confirmed = ["levels"] in [data] if that is meant',
            )

    def _take(self, message: TakeLevelsRequest) -> Nothing:
        """Take the levels that holders agreed on, and turn all declared columns into numbers."""
        if not self._listed or self._taken:
            raise ProtocolError(f"party {self._name} takes levels once, after it has told its own")
        self._taken = True
        boxes = message.levels.cut()
        if message.names.tolist() != [token for token, _ in self._lists.values()]:
            raise malformed("names", "are not the categories of this party")
        agreed: dict[str, LevelList] = {}
        for (name, (_, own)), box in zip(self._lists.items(), boxes, strict=True):
            key = agreed_key(self._level_secret(), _normal([name])[name])
            agreed[name] = open_levels(box, key)
            if digests([own])[0] not in agreed[name].joined:
                raise ProtocolError(
                    f"party {self._name} got levels that its own list is not part of; stop this run"
                )
        if self.declares:
            self._settle(self._settled(agreed))
        return Nothing()

    def _settled(self, agreed: Mapping[str, LevelList]) -> Settled:
        levels = {name: Levels(told.names, told.rare) for name, told in agreed.items()}
        made = settle_columns(self._tiles, levels)
        said: dict[str, bytes] = {}
        for name, rule in rules_of(self._tiles).items():
            told = msgspec.msgpack.encode(agreed.get(name))
            content = common_bytes(self._tiles, name) + b"\x00" + told
            plain = rule_bytes(rule) == rule_bytes(PLAIN)
            said[name] = b"" if plain else blake2b(content, digest_size=16).digest()
        tiles, remarks, bindings = [], [], dict[str, bytes]()
        for tile in self._tiles:
            applied = made.apply(tile)
            remarks += applied.remarks()
            tiles.append(settle_missing(applied.insist(self._name), self._missing, self._name))
            for feature, columns in applied.origins.items():
                bindings[feature] = b"".join(said[column] for column in columns)
        return Settled(tuple(tiles), made, bindings, tuple(remarks))


def _normal(names: Iterable[str]) -> dict[str, str]:
    """Names to the form in which they are compared."""
    listed = list(names)
    forms = normal_features(np.array(listed, dtype=object)).tolist()
    return dict(zip(listed, forms, strict=True))
