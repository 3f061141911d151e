"""What analytics advise of policies, as `retry analytics advise --json` wrote it to the file that RETRY_CONSOLE_ADVICE names.

Spark works it out elsewhere, once a day perhaps: here the file is read again when it has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from retry.analytics.advice.summary import describe_advice
from retry.console.rows import Group, Scope

# Of a file that another process writes.
_BYTES_MAX = 32 << 20
ROWS_MAX = 200


class _Row(msgspec.Struct):
    """One line of the advice; more fields are passed over. See `retry.analytics.advice.summary.make_advice_rows`."""

    team: str
    exception: str | None
    where: str
    letters: int
    verdict: str
    attempts: int
    attempts_now: int
    delays_ms: dict[int, int]
    saved: float
    kept_low: float
    recoveries_now: float
    recoveries_at_risk: float
    missing: int
    base: str = ""
    reason: str = ""


class _File(msgspec.Struct):
    advice: list[_Row]
    diff: list[str] = []


_decode = msgspec.json.Decoder(_File).decode


class Told(NamedTuple):
    """The part of the advice that a page shows, where most is saved first.

    Attributes:
      rows: `team`, `exception`, `where`, `letters`, `verdict` and `sentence` of each; `more` are left out.
      diff: the rules, as a difference of the policy file; only for viewers who see every team.
      at_ms: when the file was written; None where it cannot be read, and then `fault` says why.
    """

    rows: list[dict[str, Any]]
    more: int = 0
    diff: Sequence[str] = ()
    at_ms: int | None = None
    fault: str = ""


class GroupAdvice(NamedTuple):
    """The advice for one group of failures; `fault` says why the file cannot be read.

    Attributes:
      where: the topics or policies that it is about, where letters of this exception differ by them; else empty.
    """

    sentence: str = ""
    team: str = ""
    where: str = ""
    letters: int = 0
    at_ms: int | None = None
    fault: str = ""


def read_advice(path: Path, scope: Scope) -> Told:
    """Read the advice for the teams of a scope; a file that is missing or is no advice becomes a fault in the result."""
    found, at_ms, fault = _read_file(path)
    rows = [_describe_row(row) for row in found.advice if scope is None or row.team in scope]
    diff = found.diff if scope is None else []
    return Told(rows[:ROWS_MAX], max(0, len(rows) - ROWS_MAX), diff, at_ms, fault)


def find_group_advice(path: Path, group: Group) -> GroupAdvice | None:
    """Find the advice on a group of failures, of several the one with most letters; None without advice for its teams."""
    found, at_ms, fault = _read_file(path)
    if fault:
        return GroupAdvice(fault=fault)
    fitting = [row for row in found.advice if row.team in group.teams and row.exception == group.cause]
    # One that is about topics names the first of them.
    near = [row for row in fitting if not row.where or row.where.split(" and ")[0] in group.topics]
    if not (near or fitting):
        return None
    row = max(near or fitting, key=lambda each: each.letters)
    return GroupAdvice(_describe_row(row)["sentence"], row.team, row.where, row.letters, at_ms)


def _describe_row(row: _Row) -> dict[str, Any]:
    return {
        "team": row.team, "exception": row.exception, "where": row.where, "letters": row.letters, "verdict": row.verdict,
        "sentence": describe_advice(msgspec.structs.asdict(row)),
    }  # fmt: skip


def _read_file(path: Path) -> tuple[_File, int | None, str]:
    """Return the content of the file, when it was written, and why it cannot be read."""
    try:
        about = path.stat()
        if about.st_size > _BYTES_MAX:
            raise ValueError(f"it has more than {_BYTES_MAX >> 20} MB")
        return _parse_file(path, about.st_mtime_ns, about.st_size, about.st_ino), int(about.st_mtime * 1_000), ""
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        wrong = error.strerror if isinstance(error, OSError) else error
        return _File([]), None, f"the file that RETRY_CONSOLE_ADVICE names cannot be read: {wrong}"


@lru_cache(maxsize=1)
def _parse_file(path: Path, _written_ns: int, _bytes: int, _inode: int) -> _File:
    return _decode(path.read_bytes())
