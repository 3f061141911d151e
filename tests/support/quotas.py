"""Quotas of a broker's clients, set as operators do: by Kafka's own command, since librdkafka has no call for it."""

from __future__ import annotations

import subprocess

from retry.jars import fetch_jars

_SET_S = 180.0


def limit_producer(bootstrap_servers: str, client_id: str, bytes_a_second: int) -> None:
    """Let the clients of this id together write so many bytes a second, from now on."""
    classpath = ":".join(str(jar) for jar in fetch_jars("broker") + fetch_jars("broker-log"))
    subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.admin.ConfigCommand",
         "--bootstrap-server", bootstrap_servers, "--alter", "--add-config", f"producer_byte_rate={bytes_a_second}",
         "--entity-type", "clients", "--entity-name", client_id],
        check=True, capture_output=True, timeout=_SET_S,
    )  # fmt: skip
