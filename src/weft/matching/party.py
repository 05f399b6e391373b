"""A party's half of matching: tokens out, a view in. Training and prediction share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints, Slots
from weft.crypto.party_key_agreement import Keys, Place
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.primitives.scalars_modulo_2_144 import number_bytes
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.errors import DataError, ProtocolError
from weft.guards.privacy_terms import Matching
from weft.matching.authenticated_class_list import AgreedClasses
from weft.matching.confirm_holder_lists import Confirmation, confirm
from weft.matching.guard_facts_from_confirmed_lists import (
    LyingView,
    by_slot,
    check_gifts,
    check_labelled,
)
from weft.matching.id_and_name_forms import (
    bare_ids,
    check_apart,
    check_lengths,
    loose_features,
    normal_features,
    normal_ids,
    own_loose_forms,
)
from weft.matching.messages import (
    ASK,
    CONFLICT,
    EVALUATE,
    HELLO,
    KEYS,
    SIMILAR,
    TOKENS,
    AskReply,
    AskRequest,
    ConflictRequest,
    EvaluateReply,
    EvaluateRequest,
    HelloReply,
    HelloRequest,
    KeysRequest,
    SimilarRequest,
    TokensReply,
    TokensRequest,
    ViewReply,
    ViewRequest,
)
from weft.matching.party_view import PartyView
from weft.matching.slots_within_cohort import take_places
from weft.matching.tamper_proof_sample_count import CountCheck
from weft.matching.tile_tokens import TileTokens, token_contents
from weft.matching.tokens import tokens_of
from weft.protocol import Answer, Nothing, answer, answers
from weft.protocol.declared_message_fields import malformed

if TYPE_CHECKING:
    # Curves, and the library for them, are loaded where ids are matched so, and nowhere else.
    from weft.matching.oprf_party import Known, Oblivious

Names = NDArray[np.object_]

#: Rows that a party names where its labels are at odds with another's.
_NAMED = 5


class Held(Protocol):
    """What matching needs of a tile."""

    @property
    def ids(self) -> Names: ...

    @property
    def features(self) -> Names: ...

    @property
    def source(self) -> str: ...


@dataclass(frozen=True)
class _Sent:
    """In which order the tokens of each tile's rows were sent, and which samples have labels."""

    rows: list[Slots]
    labelled: list[Flags]


class MatchingParty:
    """One party's part in the phases ``match.…``.

    Parameters
    ----------
    name, tiles
        The party and what it holds; the tiles' values are not looked at.
    keys, keyring
        Its identity and the run secret; the keys of the run.
    targets
        Labels per tile as numbers, NaN where there is none, given the classes (None: labels are
        numbers), which it checks; None: samples are matched whether they have labels or not.
    beside
        Per tile, what else all holders of a label must agree on, row by row; None: nothing.
    accept
        Objects to ways of matching that the party does not agree to; None: it agrees to all.
    known
        What a signed roster says of all members; None: there is none.
    draws
        Makes and remembers what is random; None: remembers it as long as it lives.
    later
        Its columns are only known once levels are agreed on (`know_columns`).

    Attributes
    ----------
    ids
        Per tile, in the form in which they are compared.
    """

    def __init__(
        self,
        name: str,
        tiles: Sequence[Held],
        keys: Keys,
        keyring: Keyring,
        *,
        targets: Callable[[AgreedClasses | None], Sequence[Floats]] | None = None,
        beside: Sequence[Sequence[bytes] | None] = (),
        accept: Callable[[Matching], None] | None = None,
        known: Mapping[str, Known] | None = None,
        draws: RandomnessLog | None = None,
        later: bool = False,
    ) -> None:
        self._name, self._keys, self._keyring = name, keys, keyring
        self._draws = RandomnessLog() if draws is None else draws
        self._targets, self._accept, self._known = targets, accept, known
        self._beside = beside
        #: What the other holders of its cohorts must have confirmed; None under cipher plain.
        self._confirmation: Confirmation | None = None
        #: What all parties' counts of samples must come to; None under cipher plain.
        self._count: CountCheck | None = None
        #: Whether what it was told of its cohorts has been confirmed by all their holders.
        self._confirmed = False
        #: Whether it was asked for tokens.
        self._asked = False
        self._sources = [tile.source or "its tile" for tile in tiles]
        self.ids = [normal_ids(tile.ids) for tile in tiles]
        for tile, ids in zip(tiles, self.ids, strict=True):
            where = f"party {name}, {tile.source or 'a tile'}"
            check_apart(ids, "row", where)
            check_lengths(ids, where)
        self._features: list[Names] | None = None
        #: What else tokens of columns depend on.
        self._bindings: dict[str, bytes] = {}
        if not later:
            self.know_columns(tiles, {})
        self._oblivious: Oblivious | None = None
        #: Of rows, until it has a view: afterwards nobody asks for a row by its token.
        self._sent: _Sent | None = None
        #: In which order the tokens of each tile's columns were sent.
        self._sent_columns: list[Ints] | None = None
        self._complained = False
        self._view: PartyView | None = None

    def answers(self) -> dict[str, Answer]:
        """The phases that matching answers by itself; a view is for the party to take."""
        return answers(
            answer(HELLO, self._hello),
            answer(ASK, self._ask),
            answer(EVALUATE, self._evaluate),
            answer(TOKENS, self._tokens),
            answer(CONFLICT, self._complain),
            answer(SIMILAR, self._name_columns),
            answer(KEYS, self._take_keys),
        )

    def know_columns(self, tiles: Sequence[Held], bindings: Mapping[str, bytes]) -> None:
        """Take the names of its columns.

        ``bindings`` has, for some names, what else their tokens depend on: a column of the same
        name at a party with another binding is another column.
        """
        found = [normal_features(tile.features) for tile in tiles]
        for tile, features in zip(tiles, found, strict=True):
            if features is not tile.features:
                check_apart(features, "column", f"party {self._name}, {tile.source or 'a tile'}")
            for name, normal in zip(tile.features.tolist(), features.tolist(), strict=True):
                if bindings.get(name):
                    self._bindings[normal] = bindings[name]
        self._features = found

    @property
    def features(self) -> list[Names]:
        """Per tile, in the form in which they are compared."""
        if self._features is None:
            raise ProtocolError(
                f"party {self._name} does not know its columns yet: levels are agreed on first"
            )
        return self._features

    def _bound(self, names: Names, of: Names) -> list[bytes]:
        """What stands for columns where they are compared: names ``of`` columns, and bindings."""
        if not self._bindings:
            return _encoded(names)
        bound = [self._bindings.get(name, b"") for name in of.tolist()]
        return [
            name + (b"\x00" + more if more else b"")
            for name, more in zip(_encoded(names), bound, strict=True)
        ]

    @property
    def seated(self) -> bool:
        """Whether it has a view."""
        return self._view is not None

    @property
    def view(self) -> PartyView:
        """What matching gave."""
        if self._view is None:
            raise ProtocolError(f"party {self._name} has no view yet; matching comes first")
        return self._view

    @property
    def confirmed_view(self) -> PartyView:
        """The same, once all holders of its cohorts have confirmed it."""
        if not self._confirmed:
            raise ProtocolError(f"party {self._name} has no keys of this run yet; they come first")
        return self.view

    # ── through key holders ───────────────────────────────────────────────────────────────

    def _hello(self, message: HelloRequest) -> HelloReply:
        if self._oblivious is not None:
            # Else a key holder could be made to forget whom it has answered.
            raise ProtocolError(f"party {self._name} has begun to match already; start a new run")
        from weft.matching.oprf_party import Oblivious

        rows = sum(len(ids) for ids in self.ids)
        self._oblivious = Oblivious(self._keys, message.run, rows, self._known, self._draws)
        self._keyring.announce(message.run)
        return HelloReply(card=self._oblivious.announce())

    def _asking(self) -> Oblivious:
        if self._oblivious is None:
            raise ProtocolError(f"party {self._name} was not told of a run with key holders")
        return self._oblivious

    def _ask(self, message: AskRequest) -> AskReply:
        return self._asking().ask(message, lambda: _encoded(self._forms()))

    def _evaluate(self, message: EvaluateRequest) -> EvaluateReply:
        return self._asking().evaluate(message)

    def _forms(self) -> Names:
        """Every id, every loose form and the bare ones that are compared, once."""
        loose = (own_loose_forms(ids)[1] for ids in self.ids)
        forms = [*self.ids, *loose, bare_ids(self.ids)]
        return np.asarray(pd.unique(np.concatenate(forms)))

    # ── tokens ────────────────────────────────────────────────────────────────────────────

    def _tokens(self, message: TokensRequest) -> TokensReply:
        if self._asked:
            # Tokens of two questions could be compared, and refusals be counted.
            raise ProtocolError(f"party {self._name} makes tokens once in a run; start a new run")
        self._asked = True
        matching = self._agreed_matching(message.matching)
        if message.run != self._keyring.run_id:
            raise ProtocolError(f"party {self._name} was told of two runs; start a new one")
        self._keyring.take_company(message.company)
        outputs: dict[str, bytes] | None = None
        if matching == "oprf":
            forms = self._forms().tolist()
            outputs = dict(zip(forms, self._asking().finish(message.box), strict=True))
        secret = self._keyring.bound_secret("weft tokens")
        targets = None if self._targets is None else self._targets(message.classes)
        names = None if message.classes is None else message.classes.names()
        parts = [
            TileTokens.of(
                ids,
                None if targets is None else targets[t],
                outputs,
                secret,
                names,
                self._beside[t] if self._beside else None,
            )
            for t, ids in enumerate(self.ids)
        ]
        columns = [
            tokens_of(self._bound(names, names), secret, "columns") for names in self.features
        ]
        column_orders = [np.argsort(part, kind="stable") for part in columns]
        # Of every column, whether its name has such a form of its own or not: which do is hidden.
        similar = [
            tokens_of(self._bound(loose_features(names), names), secret, "similar columns")
            for names in self.features
        ]
        bare = bare_ids(self.ids)
        of_bare = tokens_of(token_contents(bare, outputs), secret, "rows")
        self._sent = _Sent(
            [part.order.astype(np.int32) for part in parts], [part.labelled for part in parts]
        )
        self._sent_columns = column_orders
        counts = [len(part.rows) for part in parts]
        begins = np.cumsum(counts) - counts
        return TokensReply(
            rows=np.concatenate([part.rows for part in parts]),
            columns=np.concatenate(
                [part[order] for part, order in zip(columns, column_orders, strict=True)]
            ),
            labelled=np.concatenate([part.labelled for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            bare=np.sort(of_bare),
            loose=np.concatenate([part.loose for part in parts]),
            loose_rows=np.concatenate(
                [begin + part.loose_rows for begin, part in zip(begins, parts, strict=True)]
            ),
            similar=np.concatenate(
                [part[order] for part, order in zip(similar, column_orders, strict=True)]
            ),
            row_counts=np.array(counts, np.int64),
            column_counts=np.array([len(part) for part in columns], np.int64),
        )

    def _agreed_matching(self, told: str) -> Matching:
        """How ids are matched, if this party agrees to it."""
        if told != "oprf" and told != "hmac":
            raise malformed("matching", f"names no way of matching: '{told}'")
        matching: Matching = "oprf" if told == "oprf" else "hmac"
        if self._accept is not None:
            self._accept(matching)
        return matching

    def _complain(self, message: ConflictRequest) -> Nothing:
        """Say which rows of its files have labels that another party contradicts."""
        if self._sent is None or self._complained:
            raise ProtocolError(
                f"party {self._name} is asked for rows once, after its tokens and before its view"
            )
        self._complained = True
        places = message.places
        _check_places(places, self._sent.rows, "rows")
        shown = []
        for tile in np.unique(places[:, 0]).tolist():
            order = self._sent.rows[tile]
            rows = np.sort(order[places[places[:, 0] == tile, 1]] + 1).tolist()
            named = ", ".join(map(str, rows[:_NAMED]))
            more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
            shown.append(f"row{'s' * (len(rows) > 1)} {named}{more} of {self._sources[tile]}")
        raise DataError(" and ".join(shown))

    def _name_columns(self, message: SimilarRequest) -> Nothing:
        """Tell its owner which columns another party probably has under another name."""
        if self._sent_columns is None or self._complained:
            raise ProtocolError(f"party {self._name} is asked for columns once, after its tokens")
        self._complained = True
        _check_places(message.places, self._sent_columns, "columns")
        shown = []
        for tile in np.unique(message.places[:, 0]).tolist():
            order = self._sent_columns[tile]
            places = order[message.places[message.places[:, 0] == tile, 1]]
            names = sorted(self.features[tile][places].tolist())
            named = ", ".join(repr(name) for name in names[:_NAMED])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            shown.append(f"{named}{more} of {self._sources[tile]}")
        # Names of columns are for the owner's log alone.
        raise DataError(
            f"in two spellings: {' and '.join(shown)}", told="its log names the columns"
        )

    # ── view and keys ─────────────────────────────────────────────────────────────────────

    def sit(self, message: ViewRequest) -> PartyView:
        """Take the view; what it allows is for the caller to check."""
        sent, columns = self._sent, self._sent_columns
        if sent is None or columns is None:
            raise ProtocolError(f"party {self._name} has sent no tokens yet; they come first")
        view = take_places(message.view, self.ids, self.features, sent.rows, columns)
        check_labelled(message.view, sent.labelled)
        if (message.bias_value is not None and view.counts.any()) != (view.bias_slot >= 0):
            raise LyingView
        self._view, self._sent = view, None
        return view

    def make_seeds(self, message: ViewRequest, *, alone: bool = False) -> ViewReply:
        """Make the seeds that fall to this party, sealed to the other holders.

        ``alone`` says that there are no other parties, as far as this one can know.
        """
        view, plan = self.view, message.seeds
        if plan is not None:
            check_gifts(plan.rows, plan.to, view.row_sheets)
            check_gifts(plan.columns, plan.to, view.column_sheets)
        labels = bool(view.labelled.any())
        made = self._keyring.make(
            message.seeds,
            Place(view.party, view.n_parties, labels, view.label_parties),
            view.shared_rows,
            view.shared_columns,
            alone=alone,
        )
        lists = [(s.lengths, s.holders) for s in (view.row_sheets, view.column_sheets)]
        self._keyring.know_holders(lists[0], lists[1])
        reply = ViewReply(key=self._keyring.cipher.key, seeds=made.boxes, shared_public=made.public)
        key = self._keyring.facts_key()
        if key is not None:
            names = by_slot(self.ids, view.tile_rows, view.n_shared_rows)
            features = by_slot(self.features, view.tile_columns, view.n_shared_columns)
            self._confirmation = confirm(view, names, features, message.bias_value, key)
            reply.tags = self._confirmation.own
            self._count = CountCheck(key, "samples", view.n_parties)
            told = self._count.tell(view.party, int(view.counted_rows.sum()))
            reply.samples = number_bytes(told)
        return reply

    def _take_keys(self, message: KeysRequest) -> Nothing:
        if self._confirmation is not None:
            self._confirmation.insist(message.tags)
        if self._count is not None:
            self._count.insist(self.view.n_samples, message.samples)
        self._keyring.take(message.seeds)
        self._confirmed = True
        return Nothing()


def _check_places(places: Ints, orders: Sequence[Ints | Slots], what: str) -> None:
    """Refuse tokens that were not sent, of tiles whose tokens were sent in these orders."""
    if places.ndim != 2 or places.shape[1] != 2:
        raise malformed("places", "has no tile and token in every row")
    sizes = np.array([len(order) for order in orders])
    tiles, tokens = places.T
    if (tiles < 0).any() or (tiles >= len(sizes)).any():
        raise malformed("places", "names tiles that there are not")
    if (tokens < 0).any() or (tokens >= sizes[tiles]).any():
        raise malformed("places", f"names {what} that there are not")


def _encoded(names: Names) -> list[bytes]:
    return [name.encode() for name in names.tolist()]
