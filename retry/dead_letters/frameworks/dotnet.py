"""The .NET service buses: MassTransit, NServiceBus, Wolverine. All values are UTF-8 text."""

from __future__ import annotations

from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.dialect import Dialect, any_of, at, count, name, text

_INFO = "NServiceBus.ExceptionInfo."

# It names the base exception, which is the root cause. Its address is no topic.
MASSTRANSIT = Dialect(
    family="masstransit",
    marks=any_of("MT-Reason", "MT-Fault-ExceptionType", "MT-Fault-Message", "MT-Fault-StackTrace"),
    attempts=count("MT-Fault-RetryCount", "MT-Fault-RedeliveryCount", "MT-Redelivery-Count", plus=1),
    exception=name("MT-Fault-ExceptionType"),
    cause=name("MT-Fault-ExceptionType"),
    message=text("MT-Fault-Message"),
)

NSERVICEBUS = Dialect(
    family="nservicebus",
    marks=any_of("NServiceBus.FailedQ", _INFO + "ExceptionType", _INFO + "Message"),
    origin_topic=name("NServiceBus.FailedQ"),
    attempts=count("NServiceBus.Retries", plus=1),
    exception=name(_INFO + "ExceptionType"),
    cause=at(header_values.dotnet_root, _INFO + "StackTrace"),
    message=text(_INFO + "Message"),
)

WOLVERINE = Dialect(
    family="wolverine",
    marks=any_of("exception-type"),
    exception=name("exception-type"),
    cause=at(header_values.dotnet_root, "exception-stack"),
    message=text("exception-message"),
)

DIALECTS = (NSERVICEBUS, MASSTRANSIT, WOLVERINE)
