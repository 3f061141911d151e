"""What `/info` and `/schedulers` answer about a scheduler."""

from __future__ import annotations

import socket
from importlib.metadata import version
from typing import Any

from retry.scheduling.messages.settings import SchedulerSettings


def scheduler_info(settings: SchedulerSettings) -> dict[str, Any]:
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
    """The addresses that this machine's host name resolves to; none where it does not."""
    try:
        addresses = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address[0]) for *_, address in addresses})
