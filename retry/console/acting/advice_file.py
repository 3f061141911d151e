"""What analytics advise of policies, as `retry analytics advise --json` wrote it to the file that RETRY_CONSOLE_ADVICE names.

Spark works it out elsewhere, once a day perhaps: here it is only read, each time when somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from retry.analytics.advice.told import sentence
from retry.console.replica.rows import Scope

# Of a file that another process writes.
_BYTES_MAX = 32 << 20
ROWS_MAX = 200


class _Row(msgspec.Struct):
    """One line of the advice; more fields are passed over. See `retry.analytics.advice.summary.worth`."""

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


class _File(msgspec.Struct):
    advice: list[_Row]
    diff: list[str] = []


_decode = msgspec.json.Decoder(_File).decode


class Told(NamedTuple):
    """The part of the advice that a page shows.

    Attributes:
      rows: `team`, `exception`, `where`, `letters`, `verdict` and `sentence` of each, where most is saved first.
      more: how many rows are left out.
      diff: the rules, as a difference of the policy file; only for viewers who see every team.
      at_ms: when the file was written; None where it cannot be read.
      fault: why the file cannot be read; empty where it can.
    """

    rows: list[dict[str, Any]]
    more: int = 0
    diff: Sequence[str] = ()
    at_ms: int | None = None
    fault: str = ""


def read(path: Path, scope: Scope) -> Told:
    """The advice for the teams of a scope; a file that is not there yet, or that is something else, is a fault to be shown."""
    try:
        about = path.stat()
        if about.st_size > _BYTES_MAX:
            raise ValueError(f"it has more than {_BYTES_MAX >> 20} MB")
        found = _decode(path.read_bytes())
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        wrong = error.strerror if isinstance(error, OSError) else error
        return Told([], fault=f"the file that RETRY_CONSOLE_ADVICE names cannot be read: {wrong}")
    rows = [
        {"team": row.team, "exception": row.exception, "where": row.where, "letters": row.letters, "verdict": row.verdict,
         "sentence": sentence(msgspec.structs.asdict(row))}
        for row in found.advice if scope is None or row.team in scope
    ]  # fmt: skip
    diff = found.diff if scope is None else []
    return Told(rows[:ROWS_MAX], max(0, len(rows) - ROWS_MAX), diff, int(about.st_mtime * 1_000))
