"""How a process of the service logs: one line each, to standard error."""

from __future__ import annotations

import logging
from typing import Any

from retry.errors import RetryError
from retry.printable import escape_unprintable


class Visible(logging.Formatter):
    """A line for each message, whatever the message holds of a record; of a traceback, a line for each of its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        record.message = escape_unprintable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name is logging's)
        return "\n".join(map(escape_unprintable, super().formatException(ei).split("\n")))


class ToldAtTheEnd(logging.Filter):
    """Keeps back what frameworks log of an error that ends the process and is told in one line when it has."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(("faust", "mode")):
            return True
        crash = record.getMessage().startswith("We experienced a crash")
        return not crash and not (record.exc_info and isinstance(record.exc_info[1], RetryError))


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": Visible, "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "filters": {"end": {"()": ToldAtTheEnd}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["end"]}},
    "root": {"level": "INFO", "handlers": ["stderr"]},
    # What Apprise and urllib3 say at DEBUG has addresses that are secrets.
    "loggers": {name: {"level": "WARNING"} for name in ("faust", "mode", "aiohttp", "apprise", "urllib3")},
}
