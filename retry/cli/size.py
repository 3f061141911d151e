"""`retry size`: how many workers and shards, how much memory, disk and network so many letters take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import orjson

from backoff import duration_text
from retry.cli.output import say, say_json
from retry.cli.policies import Duration

if TYPE_CHECKING:
    from retry.operations.size.calculate import Size, SizeRequest


@click.command()
@click.option("--rate", type=click.FloatRange(0, 1e7, min_open=True), metavar="N", required=True,
              help="Letters a second on average, those that fail again included.")  # fmt: skip
@click.option("--delay", "delay_ms", type=Duration(), required=True, help="How long a letter waits on average, like 5m.")
@click.option("--peak", type=click.FloatRange(0, 1e8, min_open=True), metavar="N",
              help="Letters a second at the peak. By default three times the average.")  # fmt: skip
@click.option("--letter-bytes", type=click.IntRange(1, 100_000_000), default=500, show_default=True,
              help="Bytes of a letter: key, value and headers.")  # fmt: skip
@click.option("--copies", type=click.IntRange(1, 10), default=3, show_default=True, help="Copies of a partition on the brokers.")
@click.option("--standby", type=click.IntRange(0, 100), default=0, show_default=True, help="Workers with RETRY_STANDBY=1.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def size(
    rate: float, delay_ms: int, peak: float | None, letter_bytes: int, copies: int, standby: int, *, as_json: bool
) -> None:
    """Work out what so many letters take: workers, shards, memory, disk, network. Works without a broker.

    What was measured is in docs/evidence/benchmarks.md; docs/explanation/sizing.md tells how this follows from it, and what
    was checked. The last lines say which of these inputs lie beyond that.
    """
    import msgspec

    from retry.operations.size.calculate import SizeRequest
    from retry.operations.size.calculate import compute_size as worked_out

    peak = 3 * rate if peak is None else peak
    if peak < rate:
        raise click.BadParameter("the peak is no less than the average", param_hint="--peak")
    asked = SizeRequest(rate=rate, delay_ms=delay_ms, peak=peak, letter_bytes=letter_bytes, copies=copies, standby=standby)
    result = worked_out(asked)
    if as_json:
        say_json(orjson.dumps({"asked": msgspec.to_builtins(asked), **msgspec.to_builtins(result)}))
        return
    for line in _format_size(asked, result):
        say(line)


def _format_size(asked: SizeRequest, size: Size) -> Iterator[str]:
    wait = duration_text(asked.delay_ms)
    rows = {
        "waiting": f"{size.waiting:,} letters: {asked.rate:,g} a second, each for {wait}",
        "workers": f"{size.workers}: one may be away, and the others are half busy at {asked.peak:,g} a second",
        "shards": f"{size.shards} (RETRY_SHARDS, before retry topics create)",
        "processor": f"{size.cores} cores on average for all; {size.cores_a_worker} cores for each at its busiest",
        "memory": f"{size.memory_mb_a_worker:,} MB a worker; limit it at {size.memory_limit_mb_a_worker:,} MB",
        "disk": f"{size.disk_mb_a_worker:,} MB a worker",
        "brokers' disk": f"changelog {size.changelog_mb:,} MB, at most {size.changelog_mb_most:,} MB before it is compacted; "
                         f"outcomes {size.outcomes_mb:,} MB in 30 days; all copies, uncompressed",
        "network": f"{size.to_brokers_mb_s:,g} MB/s to brokers, {size.from_brokers_mb_s:,g} MB/s from them, "
                   f"{size.between_brokers_mb_s:,g} MB/s between them",
        "after a lost disk": f"ready in {duration_text(size.restore_s * 1_000)}, where one worker reads all that it has",
        "all due at once": f"sent within {duration_text(size.all_at_once_s * 1_000)}",
    }  # fmt: skip
    width = max(map(len, rows))
    yield from (f"{name.ljust(width)}  {text}" for name, text in rows.items())
    yield from (f"not measured: {each}" for each in size.beyond)
