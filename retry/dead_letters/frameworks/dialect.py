"""A row of the table: one framework's header names, and what each field of a failure is read from."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from retry.dead_letters.frameworks import header_values

Read = Callable[[bytes], str | int | None]


class HeaderLocation(NamedTuple):
    """A header in which a field may be found.

    Attributes:
      read: value → what it says, None where that makes no sense.
      first: of duplicates the first counts, not the last: for families that write the newest in front.
      plus: what is added to a count, so that it becomes the number of failed deliveries.
    """

    header: str
    read: Read
    first: bool = False
    plus: int = 0


Places = tuple[HeaderLocation, ...]


class Tier(IntEnum):
    """The precedence of a dialect where a letter carries headers of several dialects; the highest wins."""

    OWN = 0
    AD_HOC = 1
    FRAMEWORK = 2


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one framework writes a dead letter.

    Attributes:
      family: its name in `Failure.family`; two dialects may share one.
      marks: sets of header names; a letter that has all names of one of them is of this dialect.
      attempts: all of these are read and the largest count is taken. Of every other field the first place that says
        something, in the order given.
    """

    family: str
    marks: tuple[frozenset[str], ...]
    unless: frozenset[str] = frozenset()
    tier: Tier = Tier.FRAMEWORK
    prepends: bool = False
    origin_topic: Places = ()
    origin_partition: Places = ()
    origin_offset: Places = ()
    origin_timestamp_ms: Places = ()
    consumer_group: Places = ()
    attempts: Places = ()
    exception: Places = ()
    thrown: Places = ()
    cause: Places = ()
    message: Places = ()
    stage: Places = ()
    cause_message: Places = ()

    def is_in(self, names: frozenset[str]) -> bool:
        return self.unless.isdisjoint(names) and any(mark <= names for mark in self.marks)


def any_of(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({name}) for name in names)


def all_of(*names: str) -> tuple[frozenset[str], ...]:
    return (frozenset(names),)


def read_at(read: Read, *headers: str, first: bool = False, plus: int = 0) -> Places:
    return tuple(HeaderLocation(header, read, first, plus) for header in headers)


def locate_name(*headers: str, first: bool = False) -> Places:
    return read_at(header_values.decode_name, *headers, first=first)


def locate_text(*headers: str, first: bool = False) -> Places:
    return read_at(header_values.message, *headers, first=first)


def count(*headers: str, plus: int = 0, first: bool = False) -> Places:
    return read_at(header_values.digits_int32, *headers, plus=plus, first=first)


def locate_number(*headers: str, first: bool = False) -> Places:
    return read_at(header_values.digits, *headers, first=first)
