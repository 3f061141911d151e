"""What a letter says of its failure, whichever framework wrote it, in one set of words."""

from __future__ import annotations

import msgspec

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
