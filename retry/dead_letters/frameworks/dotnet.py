"""The .NET service buses: MassTransit, NServiceBus, Wolverine. All values are UTF-8 text."""

from __future__ import annotations

from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.dialect import Dialect, any_of, count, locate_name, locate_text, read_at

_INFO = "NServiceBus.ExceptionInfo."

# It names the base exception, which is the root cause. Its address is no topic.
MASSTRANSIT = Dialect(
    family="masstransit",
    marks=any_of("MT-Reason", "MT-Fault-ExceptionType", "MT-Fault-Message", "MT-Fault-StackTrace"),
    attempts=count("MT-Fault-RetryCount", "MT-Fault-RedeliveryCount", "MT-Redelivery-Count", plus=1),
    exception=locate_name("MT-Fault-ExceptionType"),
    cause=locate_name("MT-Fault-ExceptionType"),
    message=locate_text("MT-Fault-Message"),
)

NSERVICEBUS = Dialect(
    family="nservicebus",
    marks=any_of("NServiceBus.FailedQ", _INFO + "ExceptionType", _INFO + "Message"),
    origin_topic=locate_name("NServiceBus.FailedQ"),
    attempts=count("NServiceBus.Retries", plus=1),
    exception=locate_name(_INFO + "ExceptionType"),
    cause=read_at(header_values.dotnet_root, _INFO + "StackTrace"),
    message=locate_text(_INFO + "Message"),
)

WOLVERINE = Dialect(
    family="wolverine",
    marks=any_of("exception-type"),
    exception=locate_name("exception-type"),
    cause=read_at(header_values.dotnet_root, "exception-stack"),
    message=locate_text("exception-message"),
)

DIALECTS = (NSERVICEBUS, MASSTRANSIT, WOLVERINE)
