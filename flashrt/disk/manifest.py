"""The file that makes parts a capsule: facts, ids, and which parts, with a checksum over it all."""

import hashlib
import sys
from typing import Annotated

import attrs
import msgspec

from flashrt.disk.filed import ID_BYTES, Filed, FiledRow
from flashrt.disk.names import PART_DIGEST_BYTES, PATTERNS, Role, manifest_file

FORMAT = f"flashrt-capsule 1 {sys.byteorder}"
"""Of a manifest and of the parts that it names."""

MANIFEST_BYTES_MAX = 64 << 20
"""Ids are most of it: some ten million."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
Id = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
PartName = Annotated[str, msgspec.Meta(pattern=rf"\A{PATTERNS[Role.PART].pattern}\Z")]


class BadManifest(ValueError):
    """What is wrong with a manifest, in words behind its name."""


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A file of buffers."""

    name: PartName
    size_bytes: Count


class RowPart(msgspec.Struct, forbid_unknown_fields=True):
    """The file of a row block, and the ids of its rows."""

    ids: bytes
    part: Part


class Facts(msgspec.Struct, forbid_unknown_fields=True):
    """What `Filed` has, and the identity."""

    identity: str
    key: str
    namespace: str
    session: str
    kind: str
    turn: Count
    position: Count
    pending: Id | None
    lineage: tuple[tuple[Count, bool, tuple[Id, ...]], ...]
    saved_at: float
    pinned: bool
    state: Part
    rows: tuple[RowPart, ...]


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file. `digest`: of the format and of the bytes of `capsule`."""

    format: str
    digest: str
    capsule: msgspec.Raw


TOLD = tuple(name for name in Facts.__struct_fields__ if name not in ("identity", "state", "rows"))
"""What stands in the file as it stands in `Filed`."""

ENVELOPE = msgspec.json.Decoder(Envelope)
FACTS = msgspec.json.Decoder(Facts)


@attrs.frozen
class Manifest:
    """A sound manifest, read."""

    identity: str
    filed: Filed
    state: str

    @property
    def parts(self) -> dict[str, int]:
        """The files that it names, with their sizes."""
        rows = {row.name: row.size_bytes for row in self.filed.rows}
        return {self.state: self.filed.state_bytes, **rows}

    @property
    def file(self) -> str:
        """The name that it must have."""
        return manifest_file(self.identity, self.filed.key)


def encoded(manifest: Manifest) -> bytes:
    """The bytes of the file. Raises BadManifest for facts that could not be read again."""
    filed = manifest.filed
    facts = {name: getattr(filed, name) for name in TOLD}
    rows = tuple(RowPart(row.packed, Part(row.name, row.size_bytes)) for row in filed.rows)
    state = Part(manifest.state, filed.state_bytes)
    try:
        body = msgspec.json.encode(
            Facts(identity=manifest.identity, state=state, rows=rows, **facts)
        )
        data = msgspec.json.encode(Envelope(FORMAT, _digest(FORMAT, body), msgspec.Raw(body)))
    except (msgspec.MsgspecError, UnicodeError, TypeError, OverflowError) as error:
        raise BadManifest(f"cannot be told: {error}") from error
    if decoded(data) != manifest:
        raise BadManifest("would be read as another")
    return data


def decoded(data: bytes) -> Manifest:
    """A manifest from the bytes of its file. Raises BadManifest."""
    if len(data) > MANIFEST_BYTES_MAX:
        raise BadManifest(f"has {len(data):,} bytes; at most {MANIFEST_BYTES_MAX:,}")
    try:
        envelope = ENVELOPE.decode(data)
        if envelope.format != FORMAT:
            raise BadManifest(f"is of format {envelope.format[:40]!r}; this is {FORMAT!r}")
        body = bytes(envelope.capsule)
        # One form only: blanks, or a name that comes twice, are no part of the checksum.
        if envelope.digest != _digest(FORMAT, body) or msgspec.json.encode(envelope) != data:
            raise BadManifest("does not have its checksum")
        return _checked(FACTS.decode(body))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadManifest(f"is no manifest: {error}") from error


def _checked(facts: Facts) -> Manifest:
    covered = 0
    for row in facts.rows:
        if not row.ids or len(row.ids) % ID_BYTES or covered >= facts.position:
            raise BadManifest("has rows that do not follow each other")
        covered += len(row.ids) // ID_BYTES
    if covered < facts.position:
        raise BadManifest(f"has rows for {covered:,} of {facts.position:,} ids")
    rows = tuple(FiledRow(row.ids, row.part.name, row.part.size_bytes) for row in facts.rows)
    told = {name: getattr(facts, name) for name in TOLD}
    filed = Filed(**told, rows=rows, state_bytes=facts.state.size_bytes)
    return Manifest(facts.identity, filed, facts.state.name)


def _digest(form: str, body: bytes) -> str:
    digest = hashlib.blake2b(form.encode() + b"\n", digest_size=PART_DIGEST_BYTES)
    digest.update(body)
    return digest.hexdigest()
