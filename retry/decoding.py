"""How records of the service's own topics are decoded: whatever is wrong with one, that is told by one kind of error.

Anybody who may write to such a topic can put there what no version of this service wrote. Decoders tell of that in several ways:
of text that is no UTF-8, of what is nested too deep, of numbers beyond all bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

_T = TypeVar("_T")

# What decoders of JSON and of MessagePack raise of bytes that are not what they are taken for.
DECODE_ERRORS = (ValueError, RecursionError)
# Numbers that databases and Spark take, too. No year of a calendar is beyond these milliseconds, nor any count that is real.
Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
Partition = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
TopicName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
# -1 where it is not known.
LeaderEpoch = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]
# See `retry.intake.record_versions`: greater than any `Number` is.
RecordVersion = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def json_decoder(type_: type[_T], noun: str) -> Callable[[bytes], _T]:
    """Make a decoder of JSON objects of a type, which raises ValueError of whatever is none.

    Args:
      noun: what people call such an object.
    """
    decode = msgspec.json.Decoder(type_).decode

    def decode_json(value: bytes) -> _T:
        try:
            return decode(value)
        except DECODE_ERRORS as error:
            raise ValueError(f"{len(value)} bytes are no {noun}: {error}") from error

    return decode_json
