"""What a letter says of its failure, whichever framework wrote it, in one set of words.

Of a letter that is parked by reference, the reference tells it, as a JSON object in the header `retry-parked-fault`. Every
version takes that header for one of ours: a reference is known by having no others.
"""

from __future__ import annotations

import msgspec

from retry.dead_letters import retry_headers as names
from retry.record import Headers

UNKNOWN = "unknown"


class Failure(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A failure, as far as the headers tell; None where they do not.

    Attributes:
      family: who wrote the letter; `unknown` where nothing is recognised.
      attempts: deliveries that have failed, corrected for how the family counts; at least 1.
      exception, message: class as the framework names it, wrappers included, and its text.
      thrown: the class that the wrapper was put around, where the framework names it; rules know it as an exception.
      cause_message: of the root cause; None where it has none or is not told apart.
    """

    family: str = UNKNOWN
    origin_topic: str | None = None
    origin_partition: int | None = None
    origin_offset: int | None = None
    origin_timestamp_ms: int | None = None
    consumer_group: str | None = None
    attempts: int = 1
    exception: str | None = None
    thrown: str | None = None
    cause: str | None = None
    message: str | None = None
    stage: str | None = None
    cause_message: str | None = None

    @property
    def root(self) -> tuple[str | None, str | None]:
        """Class and message of the root cause; those of the exception where nothing is said of a cause."""
        return self.cause or self.exception, self.cause_message or self.message


# What a team's own headers may tell.
FIELDS = tuple(name for name in Failure.__struct_fields__ if name not in ("family", "thrown", "cause_message"))


_CHARS_MAX = 4_000


class ToldFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a failure that a reference tells; see `Failure`. `group` is the consumer group."""

    family: str
    exception: str | None = None
    thrown: str | None = None
    cause: str | None = None
    message: str | None = None
    cause_message: str | None = None
    group: str | None = None
    stage: str | None = None
    v: int = 1


_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(ToldFailure).decode


def encode_failure(failure: Failure) -> bytes | None:
    """Return what a reference tells of a failure; None where nothing is known of it."""
    if failure.exception is None and failure.message is None and failure.cause is None:
        return None
    return _encode(ToldFailure(
        failure.family, exception=_shorten(failure.exception), thrown=_shorten(failure.thrown), cause=_shorten(failure.cause),
        message=_shorten(failure.message), cause_message=_shorten(failure.cause_message), group=_shorten(failure.consumer_group),
        stage=_shorten(failure.stage),
    ))  # fmt: skip


def read_failure(ours: Headers) -> Failure | None:
    """Read the failure that a parked reference tells; None where it tells none.

    References of earlier versions tell none, and neither do records parked as `refused`.
    """
    value = next((value for name, value in ours if name == names.PARKED_FAULT), None)
    if not value or not value.startswith(b"{"):
        return None
    try:
        told = _decode(value)
    except ValueError:
        return None
    return Failure(
        family=told.family, exception=told.exception, thrown=told.thrown, cause=told.cause, message=told.message,
        cause_message=told.cause_message, consumer_group=told.group, stage=told.stage,
    )  # fmt: skip


def _shorten(text: str | None) -> str | None:
    # Half a character of UTF-16, which JSON does not take, is what some clients write.
    return None if text is None else text[:_CHARS_MAX].encode("utf-8", "replace").decode()
