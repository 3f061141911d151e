"""The value of an entry, byte for byte: what is to be delivered, and where to.

Envelope: a MessagePack array whose first element is the format's version, written once, at intake, and copied as bytes; only the
sweep decodes it. Here no keys are known; `retry.delay_queue.envelope_codec` reads and writes what is sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from backoff import PolicyInvalid, recurrence
from backoff.recurrence import ONCE, Run
from retry import format_versions
from retry.delay_queue.entry_keys import CANCEL, build_named_key
from retry.errors import EntryForeign, EntryNewer, EntryUnreadable, SealUnopened
from retry.format_versions import DECODE_ERRORS, Format
from retry.record import Headers

# librdkafka gives consumers none of the headers of a record that has more: none is written with more, ours included.
HEADERS_MAX = 100_000
# Headers of what recurs: which run a record is, and when that was due.
RUN, DUE_MS = "task-run", "task-due-ms"

# Every timestamp that Kafka has; a client that is given another one cannot write a record.
_Timestamp = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=format_versions.ENVELOPE.writes):
    """A delivery that waits for its due time, complete: the sweep adds nothing to it and asks nobody.

    Attributes:
      key, value, headers: as they will be sent; `None` is a null, not an empty value.
      timestamp_ms: the letter's own timestamp, kept; `None` where it had none.
      failed_at_ms: when the failure happened that it was made for; None where nothing has failed, as of what is scheduled.
    """

    destination: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: _Timestamp | None
    team: str
    failed_at_ms: _Timestamp | None = None


class Also(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record that is published beside a delivery, in its transaction and before it; its key decides where `partition` is None.

    Where it `copies_entry`, it has the entry's own value, and its headers before those here; `value` is None then.
    """

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    copies_entry: bool = False
    headers: Headers = []


class Call(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An HTTP call in place of a record: what `destination`, `value` and `headers` of its entry leave open.

    Attributes:
      url: whole; the entry's destination is its origin, `https://host:port`.
      id: of the message, the same at each attempt.
      attempt: number of the next one, from 1.
    """

    url: str
    method: str = "POST"
    id: str = ""
    attempt: int = 1
    policy: str = ""
    timeout_ms: int = 10_000


class Recurrence(msgspec.Struct, array_like=True, frozen=True, gc=False):
    run: int
    start_ms: int
    every_ms: int = 0
    cron: str = ""
    zone: str = "UTC"
    end_ms: int | None = None
    jitter_ms: int = 0
    seed: int = 0
    late_ms: int = 60_000
    misfire: str = ONCE
    catch_up_max: int = 1


class Named(Entry, array_like=True, frozen=True, gc=False, tag=format_versions.ENVELOPE.writes):
    """An entry with a name, and the fields that only such entries have; a reader of plain entries passes over them.

    Attributes:
      also: what is published in the same transaction, before the delivery itself.
    """

    also: tuple[Also, ...] = ()
    plan: Recurrence | None = None
    call: Call | None = None


class SealedEnvelope(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=format_versions.SEALED_ENVELOPE.writes):
    """An envelope that needs a key, and in clear what is asked of an entry that waits; see `retry.sealing.key_ring.Sealed`."""

    destination: str
    team: str
    timestamp_ms: _Timestamp | None
    failed_at_ms: _Timestamp | None
    key_id: str
    wrapped: bytes
    nonce: bytes
    content: bytes


class Unopened(Named, array_like=True, frozen=True, gc=False, tag=format_versions.ENVELOPE.writes):
    """An entry that this process cannot open, and `why`: to be shown, and never sent. If it `is_foreign`, no key will open it."""

    why: str = ""
    is_foreign: bool = False


encode = msgspec.msgpack.Encoder().encode
# The version and the fields of an `Entry`, in their order. Such a tuple is encoded alike, and takes a third of the time to make.
VERSION = format_versions.ENVELOPE.writes
EntryFields = tuple[int, str, bytes | None, bytes | None, Headers, int | None, str, int | None]
_decode = msgspec.msgpack.Decoder(Entry | SealedEnvelope).decode
_decode_named = msgspec.msgpack.Decoder(Named | SealedEnvelope).decode
_fields = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def decode(envelope: bytes) -> Entry:
    """Decode the entry in an unsealed envelope; raises SealUnopened, EntryNewer or EntryForeign as `EnvelopeCodec.decode`."""
    found = decode_routing(envelope)
    if isinstance(found, SealedEnvelope):
        raise SealUnopened(found.key_id, f"it is sealed under key {found.key_id}, and this process has no keys")
    return found


def decode_named(envelope: bytes) -> Named:
    """Decode the named entry in an unsealed envelope; fields that plain entries lack are empty. Raises as `decode`."""
    found = decode_named_routing(envelope)
    if isinstance(found, SealedEnvelope):
        raise SealUnopened(found.key_id, f"it is sealed under key {found.key_id}, and this process has no keys")
    return found


def decode_routing(envelope: bytes) -> Entry | SealedEnvelope:
    """Decode an envelope without a key, of a sealed one what is in clear; raises EntryNewer or EntryForeign as `decode`."""
    try:
        return _decode(envelope)
    except DECODE_ERRORS as error:
        raise _no_entry(envelope, error) from error


def decode_all_routings(envelopes: Sequence[bytes]) -> list[Entry | SealedEnvelope]:
    """Decode many envelopes as `decode_routing` does; raises as it does of the first that is to blame."""
    try:
        return list(map(_decode, envelopes))
    except DECODE_ERRORS:
        return list(map(decode_routing, envelopes))


def decode_named_routing(envelope: bytes) -> Named | SealedEnvelope:
    """Decode the envelope of a named entry without a key, as `decode_routing` does for plain ones."""
    try:
        return _decode_named(envelope)
    except DECODE_ERRORS as error:
        raise _no_entry(envelope, error) from error


def _no_entry(envelope: bytes, error: Exception) -> EntryForeign:
    check_version(envelope)
    return EntryForeign(f"{len(envelope)} bytes are no entry of version 1: {error}")


def check_version(value: bytes, of: Format = format_versions.ENVELOPE) -> None:
    """Look at the version of an envelope, or of a block, and at nothing else; raises EntryNewer where only newer ones know it."""
    try:
        version = msgspec.msgpack.decode(_fields(value)[0])
    except (*DECODE_ERRORS, IndexError):
        return
    of.refuse_newer(version, EntryNewer)


def build_cancel(name: bytes, version: int, stem: bytes, offset: int, remembered_until_ms: int = 0) -> tuple[bytes, bytes]:
    """Build the key and envelope of a record that ends what waits under a name, up to and including a version.

    Until `remembered_until_ms` it also ends what is taken in after it.
    """
    return build_named_key(remembered_until_ms, name, version, stem, offset, CANCEL), _CANCELLED


_CANCELLED = encode(Entry("", None, None, [], None, ""))


def make_run_headers(headers: list[tuple[str, bytes | None]], due_ms: int, run: int) -> list[tuple[str, bytes | None]]:
    """Return the headers with `task-run` and `task-due-ms` of this run, in the place of those of an earlier run."""
    own: list[tuple[str, bytes | None]] = [(RUN, b"%d" % run), (DUE_MS, b"%d" % due_ms)]
    return drop_run_headers(headers) + own


def drop_run_headers(headers: list[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return the headers that a run has from its definition."""
    return [header for header in headers if header[0] not in (RUN, DUE_MS)]


def find_next_run(plan: Recurrence, due_ms: int, now_ms: int) -> Run | None:
    """Find due time and number of the next run; None where the waiting one is the last.

    Raises EntryUnreadable where the time zone is not known here.
    """
    try:
        return recurrence.find_next_run(plan, due_ms, now_ms)
    except PolicyInvalid as invalid:
        raise EntryUnreadable(f"{invalid}; install time zones, or the package tzdata, as other workers have them") from None
