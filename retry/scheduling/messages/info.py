"""What a scheduler says of itself."""

from __future__ import annotations

import socket
from importlib.metadata import version
from typing import Any

from retry.scheduling.messages.settings import SchedulerSettings


def info(settings: SchedulerSettings) -> dict[str, Any]:
    """The fields of the Go scheduler, and our version."""
    return {
        "hostname": socket.gethostname(),
        "address": _addresses(),
        "server_address": str(settings.server),
        "kafka": {
            "bootstrap_servers": settings.worker.bootstrap_servers,
            "topics": list(settings.topics),
            "history_topic": settings.history,
        },
        "version": version("dead-letter-retry"),
    }


def _addresses() -> list[str]:
    """Those by which this machine's own name is known; none where it is not."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address[0]) for *_, address in found})
