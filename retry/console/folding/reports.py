"""What the process that folds tells the console, and what it is told: messages over a pipe between the two."""

from __future__ import annotations

from pathlib import Path

import msgspec

from retry.settings import Settings
from retry.telemetry.unreadable_records import UnreadableTopic

# All that is said after `Begin`, but for ids of files that were found to be corrupt.
CLOSE = b"close"


class Begin(msgspec.Struct, frozen=True):
    """The first message to the process that folds. Secrets of the settings go this way, and are in no argument of its command.

    Attributes:
      corrupt: id of a file that is of no use and is built anew; empty where there is none.
      has_policies: whether the console's policy file has teams or tasks: one without any is not begun with then.
    """

    settings: Settings
    path: Path
    corrupt: str
    has_policies: bool = False


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A partition: where reading began, what is folded next, and where it ended when that was asked last."""

    topic: str
    partition: int
    begun: int
    next_offset: int
    end: int


class Report(msgspec.Struct, frozen=True):
    """How far the fold has come.

    Attributes:
      file_id: of the file that may be shown; empty while it is built. None while it is not known whether there is one of use:
        then nothing but `trouble` and `is_stopped` is told.
      generation: changes whenever something has changed that pages show.
      as_of_ms: up to when all is folded that there was.
      answered_s: when something was heard of brokers last, by the monotonic clock of this machine.
      trouble: why it does not go on, or what it passed over; empty where all is well.
    """

    file_id: str | None = None
    generation: int = 0
    as_of_ms: int | None = None
    answered_s: float = 0.0
    trouble: str = ""
    is_stopped: bool = False
    places: list[Place] = []
    retention_ms: dict[str, int] = {}
    unreadable: list[UnreadableTopic] = []

    @property
    def lag_records(self) -> int:
        """How many offsets are there that are not folded."""
        return sum(max(0, place.end - place.next_offset) for place in self.places)


encode_begin = msgspec.json.Encoder(enc_hook=str).encode
decode_begin = msgspec.json.Decoder(Begin, dec_hook=lambda kind, text: kind(text)).decode
encode_report = msgspec.msgpack.Encoder().encode
decode_report = msgspec.msgpack.Decoder(Report).decode
