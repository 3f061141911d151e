"""How a scheduler logs: lines to standard error, and GELF to Graylog where GRAYLOG_SERVER is set."""

from __future__ import annotations

import copy
from typing import Any

from retry.scheduling.messages.settings import SchedulerSettings
from retry.worker.logs import LOGGING

_NAME = "kafka-message-scheduler"


def logging_of(settings: SchedulerSettings) -> dict[str, Any]:
    """The logging configuration, for `logging.config.dictConfig`."""
    config = copy.deepcopy(LOGGING)
    config["root"]["level"] = settings.level
    if settings.graylog is not None:
        config["handlers"]["graylog"] = {
            "class": "pygelf.GelfUdpHandler",
            "host": settings.graylog.host,
            "port": settings.graylog.port,
            # As the Go scheduler names itself, so that searches go on finding it.
            "_app": _NAME,
            "_facility": _NAME,
            "include_extra_fields": True,
        }
        config["root"]["handlers"].append("graylog")
    return config
