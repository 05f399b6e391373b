"""A party's part in the release of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.data.columns.table_transformation import Transformation
from weft.errors import ProtocolError
from weft.federation.messages import ModelRequest, ModelSlice, ReleaseReply
from weft.federation.model import Model
from weft.federation.release.encrypted_model_slices import open_slice, seal_slice
from weft.federation.release.model_header import Head
from weft.federation.release.reader_join_second_moments import SecondMoments
from weft.federation.release.reader_opens_release import joined
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol.signed_transcript_hash import Transcript, signed_bytes
from weft.solvers.run_settings import Settings

if TYPE_CHECKING:
    from weft.federation.release.reader_standard_errors import Inference

Publics = Mapping[str, PublicIdentity]


class ReleaseParty:
    """Seals this party's slice to those who get the model, and joins the slices if it is one.

    Who they are, and their keys, it knows from its roster or from its folder of keys; never from
    the coordinator, who could name itself.

    Parameters
    ----------
    members, readers
        As `weft.federation.party.Party` takes them.

    Attributes
    ----------
    model, second_moments, inference
        The model, once it is there, and what came with it, as `Released` has it.
    """

    def __init__(
        self,
        consent: Consent,
        keyring: Keyring,
        identity: Identity,
        members: Publics | None,
        readers: Publics | None,
    ) -> None:
        self._name = consent.name
        self._keyring = keyring
        self._identity = identity
        roster = consent.roster
        if roster is not None:
            members = {name: member.identity for name, member in roster.members.items()}
        self._members: Publics = members or {}
        if readers is None:
            names = self._members if roster is None else roster.charter.having("model")
            readers = {name: self._members[name] for name in names}
        self._readers = readers
        self.model: Model | None = None
        self.second_moments: SecondMoments | None = None
        self.inference: Inference | None = None

    def seal(
        self, slice_: ModelSlice, exposed: bool | None, seen: Transcript | None
    ) -> ReleaseReply:
        """A slice, in letters to all readers; the rest as `ReleaseReply` has it."""
        if not self._readers:
            raise ProtocolError(
                f"party {self._name} does not know who gets the model; give it a roster, or a "
                "folder of keys with those of the other parties"
            )
        run, transcript, signature = self._keyring.run_id, None, None
        if seen is not None:
            transcript = seen.digest()
            signature = self._identity.sign(signed_bytes(run, self._name, transcript))
        return ReleaseReply(
            readers=np.array(list(self._readers), dtype=str),
            boxes=seal_slice(slice_, self._identity, self._readers, run),
            exposed=exposed,
            transcript=transcript,
            signature=signature,
            unheard=None if seen is None else seen.unheard or None,
        )

    def take(
        self,
        message: ModelRequest,
        settings: Settings,
        classes: NDArray[Any] | None,
        whole: int | None,
        transformation: Transformation,
    ) -> None:
        """Join the slices that the others wrote to this party.

        Parameters
        ----------
        settings, classes
            Of the run, as this party was told them before: the model must be of the same problem.
        whole
            How many parties there are; None: some are gone.
        transformation
            How its own columns became numbers; those of others it never learns.
        """
        writers, letters = message.writers.tolist(), message.boxes.cut()
        slices = []
        for writer, letter in zip(writers, letters, strict=True):
            if writer not in self._members:
                raise ProtocolError(
                    f"party {self._name} got a part of the model from '{writer}', whose keys it "
                    "does not know; find out who takes part in this run"
                )
            public, run = self._members[writer], self._keyring.run_id
            slices.append(open_slice(letter, writer, self._identity, public, run))
        if whole is not None and len(set(writers)) != whole:
            raise ProtocolError(
                f"party {self._name} got {len(set(writers))} of {whole} parts of the model; do not "
                "use it"
            )
        head = Head.from_json(message.head)
        head.insist_on(settings, classes)
        model, self.second_moments, self.inference = joined(
            slices, head, settings, overlapping=whole is None
        )
        self.model = replace(model, transformation=transformation.to_json())
