"""Where a page goes on, as text that says which list it belongs to."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from xxhash import xxh3_64_hexdigest

from retry.errors import CursorStale

_CHARS_MAX, _MAX = 500, 1 << 63


def encode(file_id: str, question: str, position: tuple[int, int] | None) -> str | None:
    """The cursor behind a position of a list; None where it ends there.

    Args:
      file_id: of the replica.
      question: what was asked: of another question no cursor is of use.
    """
    if position is None:
        return None
    return urlsafe_b64encode(msgspec.msgpack.encode((_list(file_id, question), *position))).decode().rstrip("=")


def decode(file_id: str, question: str, cursor: str | None) -> tuple[int, int] | None:
    """The position that a cursor stands for; None for the beginning.

    Raises:
      CursorStale: it is of another list.
    """
    if cursor is None:
        return None
    try:
        raw = urlsafe_b64decode((cursor[:_CHARS_MAX] + "==").encode())
        of, first, second = msgspec.msgpack.decode(raw, type=tuple[str, int, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise CursorStale from error
    if of != _list(file_id, question) or not all(-_MAX < each < _MAX for each in (first, second)):
        raise CursorStale
    return first, second


def _list(file_id: str, question: str) -> str:
    return xxh3_64_hexdigest(f"{file_id}\0{question}".encode("utf-8", "surrogatepass"))
