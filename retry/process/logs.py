"""How a process of the service logs: one line each, to standard error, as text or as JSON.

| field of JSON | meaning |
| --- | --- |
| `at` | when it was logged |
| `level`, `logger` | `DEBUG` to `CRITICAL`, and which module says it |
| `message` | the sentence that a line of text has |
| `process` | id of the process |
| `letter` | topic, partition and offset of the letter that it is about |
| `retry_id`, `attempt` | its lineage, and the number of its retry |
| `trace_id`, `span_id` | of the span that OpenTelemetry has of that retry, where spans are sent |
| `letter_trace_id` | of the trace that the letter's own `traceparent` names |
| `team`, `target` | whose letter it is, and where it goes |
| `timer` | id of the timer that it is about |
| `call` | what was asked of the API |
| `left_out` | how many lines that say the same were left out before this one |
| `error` | the traceback of what failed |

A field that says nothing is left out. Text has what is in `message`, and what was left out.
"""

from __future__ import annotations

import logging
import logging.config
import re
import sys
from collections.abc import Hashable
from typing import Any

import orjson

from retry import clock
from retry.errors import RetryError
from retry.printable import escape_json, escape_unprintable
from retry.repeated_lines import RepeatedLineFilter

JSON = "json"
# What a record has whatever it is about; all else that it has was said by who logged it.
_PLAIN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName", "left_out"}

# As frameworks measure it, so that no sentence of theirs with one is ever the same: "runtime=5.00564978599".
_DURATION = re.compile(r"(?<==)[0-9]+\.[0-9]{3,}")


class Visible(logging.Formatter):
    """A line for each message, whatever the message holds of a record; of a traceback, a line for each of its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        left_out = getattr(record, "left_out", 0)
        record.message = escape_unprintable(record.message) + (f" (left out: {left_out} more of these)" if left_out else "")
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name is logging's)
        return "\n".join(map(escape_unprintable, super().formatException(ei).split("\n")))


class JsonLine(logging.Formatter):
    """One JSON object for each message, with what it is about as fields; a traceback is a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "at": clock.iso(int(record.created * 1_000)), "level": record.levelname, "logger": record.name,
            "message": record.getMessage(), "process": record.process,
        }  # fmt: skip
        told |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if left_out := getattr(record, "left_out", 0):
            told["left_out"] = left_out
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        shown = {name: _to_text(value) if isinstance(value, str) else value for name, value in told.items()}
        return escape_json(orjson.dumps(shown, default=str, option=orjson.OPT_NON_STR_KEYS).decode())


def _to_text(value: str) -> str:
    """Text that JSON can hold: halves of characters are shown as escapes."""
    return value.encode("utf-8", "backslashreplace").decode()


class ToldAtTheEnd(logging.Filter):
    """Keeps back what frameworks log of an error that ends the process and is told in one line when it has."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(("faust", "mode")):
            return True
        crash = record.getMessage().startswith("We experienced a crash")
        return not crash and not (record.exc_info and isinstance(record.exc_info[1], RetryError))


def _find_trouble(record: logging.LogRecord) -> Hashable | None:
    """Find the sentence of a warning or an error; None of all else, which may repeat."""
    if record.levelno < logging.WARNING:
        return None
    return record.name, _DURATION.sub("", record.getMessage()), repr(record.exc_info[1]) if record.exc_info else ""


# One for all: whoever sets up logging twice says nothing twice.
_REPEATED = RepeatedLineFilter(_find_trouble)


def build_logging(log_format: str, level: str) -> dict[str, Any]:
    """Build what `logging.config` takes, as `RETRY_LOG_FORMAT` and `RETRY_LOG_LEVEL` say."""
    formatter = {"()": JsonLine} if log_format == JSON else {
        "()": Visible, "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s",
    }  # fmt: skip
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "filters": {"end": {"()": ToldAtTheEnd}, "repeated": {"()": lambda: _REPEATED}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler", "formatter": "line", "filters": ["end", "repeated"], "level": level.upper(),
            },
        },
        "root": {"level": level.upper(), "handlers": ["stderr"]},
        # What Apprise and urllib3 say at DEBUG has addresses that are secrets.
        "loggers": {name: {"level": "WARNING"} for name in ("faust", "mode", "aiohttp", "apprise", "urllib3")},
    }  # fmt: skip


def configure_logs(logs: dict[str, Any]) -> None:
    """Log as `build_logging` says from now on; as JSON also what ends the process."""
    logging.config.dictConfig(logs)
    if is_json():
        sys.excepthook = lambda kind, error, trace: tell_end("cannot go on", (kind, error, trace))


def is_json() -> bool:
    """Whether this process logs as JSON."""
    return any(isinstance(handler.formatter, JsonLine) for handler in logging.root.handlers)


def tell_end(why: str, error: Any = None) -> None:
    """Log what ended the process."""
    logging.getLogger(__name__).critical("%s", why, exc_info=error)
