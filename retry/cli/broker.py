"""`retry broker`: the local broker for development and tests."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from retry.cli.output import say
from retry.errors import BrokerNotStarted


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), default=9092, show_default=True, help="Port; 0 picks a free one.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("retry-broker"), show_default=True,
    help="Directory for its data.",
)  # fmt: skip
@click.option("--heap-mb", type=click.IntRange(128), default=512, show_default=True, help="Heap of the broker's JVM.")
def broker(port: int, data_dir: Path, heap_mb: int) -> None:
    """Run a real one-node Kafka broker on 127.0.0.1 for development, until stopped."""
    from retry.kafka.local_broker import LocalBroker

    local = LocalBroker(data_dir, port, heap_mb, brief=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with local:
            say(f"broker ready on {local.bootstrap_servers}, data in {local.data_dir}")
            code = local.wait()
            raise BrokerNotStarted(f"the broker's process ended by itself with code {code}; read {local.log_file}")
    except KeyboardInterrupt:
        say("broker stopped")
