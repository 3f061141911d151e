"""Spans of this process, where its settings ask for them."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from retry.distribution import describe_extra
from retry.errors import SettingsInvalid
from retry.kafka.topics import build_topic_names
from retry.settings import Settings

if TYPE_CHECKING:
    from retry.telemetry.tracing import Traces


def open_traces(settings: Settings) -> Traces | None:
    """Open what sends spans until the process ends; None where there are none. Raises SettingsInvalid without the library."""
    if not settings.traces:
        return None
    try:
        # Whoever sends none needs no library.
        from retry.telemetry.tracing import Traces
    except ImportError as error:
        raise SettingsInvalid("RETRY_TRACES", f"{error}; {describe_extra('otel')}, or set it to 0") from None
    traces = Traces(settings.app_id, group=build_topic_names(settings.app_id).intake_group)
    atexit.register(traces.close)
    return traces
