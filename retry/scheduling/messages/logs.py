"""How a scheduler logs: lines to standard error, and GELF to Graylog where that is asked for."""

from __future__ import annotations

import copy
from typing import Any

from retry.worker.logs import LOGGING
from retry.scheduling.messages.settings import SchedulerSettings

_NAME = "kafka-message-scheduler"


def logging_of(settings: SchedulerSettings) -> dict[str, Any]:
    """What `logging.config.dictConfig` takes."""
    found = copy.deepcopy(LOGGING)
    found["root"]["level"] = settings.level
    if settings.graylog is not None:
        found["handlers"]["graylog"] = {
            "class": "pygelf.GelfUdpHandler",
            "host": settings.graylog.host,
            "port": settings.graylog.port,
            # As the Go scheduler names itself, so that searches go on finding it.
            "_app": _NAME,
            "_facility": _NAME,
            "include_extra_fields": True,
        }
        found["root"]["handlers"].append("graylog")
    return found
