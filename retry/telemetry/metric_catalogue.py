"""Every metric, once: code makes its metrics from this table, and docs/metrics.md is written from it.

    python -m retry.telemetry.metric_catalogue > docs/metrics.md
"""

from __future__ import annotations

import sys
from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Metric(NamedTuple):
    """One metric; `name` is the one on the page, of a histogram the one before `_bucket`, `_sum` and `_count`."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str


_RETRY = ("team", "policy", "attempt")

WORKER = (
    Metric("retry_letters_taken_total", COUNTER, ("team", "decision"),
           "letters taken in and committed; `retry` or `park`. Definitions of tasks: `schedule`, `cancel` or `park`"),
    Metric("retry_letters_read_total", COUNTER, ("family",),
           "the same by who wrote them; `unknown` tells nothing of its failure"),
    Metric("retry_failures_total", COUNTER, ("team", "exception", "attempt"),
           "letters by root cause, or class where no cause is told, and by the number of the retry that failed, `0` where it was "
           "none; the first 20 of a team by name, then `(others)`; `(none)` where the letter does not tell"),
    Metric("retry_letters_back_total", COUNTER, _RETRY,
           "letters that came back from a retry; policy and number of that retry, `10+` from the tenth on"),
    Metric("retry_letters_parked_total", COUNTER, ("team", "policy", "reason"), "letters parked, by reason"),
    Metric("retry_retries_sent_total", COUNTER, _RETRY, "retries delivered; policy and number, `10+` from the tenth on"),
    Metric("retry_window_sent", GAUGE, _RETRY,
           "retries that were due within the hour before the last ten minutes, and were sent by this worker"),
    Metric("retry_window_back", GAUGE, _RETRY, "of the same hour, retries of which this worker took a letter in again"),
    Metric("retry_recovery_ratio", GAUGE, _RETRY,
           "1 - `retry_window_back` / `retry_window_sent`; with several workers divide the sums of these"),
    Metric("retry_entries_sent_total", COUNTER, ("team",), "entries delivered and committed, parked letters included"),
    Metric("retry_entries_put_back_total", COUNTER, ("target",), "records that were too large for their topic, and wait on"),
    Metric("retry_calls_total", COUNTER, ("team", "decision"),
           "HTTP calls of timers that have ended: `delivered`, `retry`, `parked`"),
    Metric("retry_call_seconds", HISTOGRAM, (), "how long these took"),
    Metric("retry_calls_under_way", GAUGE, (), "those without an answer yet"),
    Metric("retry_hosts_held", GAUGE, ("state",), "hosts whose breaker is `open` or `half-open`"),
    Metric("retry_lateness_seconds", HISTOGRAM, ("team",), "from the due time to the commit of the delivery"),
    Metric("retry_entries_waiting", GAUGE, (), "entries in the shards of this worker"),
    Metric("retry_entries_due_soon", GAUGE, ("within",),
           "of these, what is due by now or within `1m`, `5m`, looked at every 10 s; estimated where it is thousands. "
           "What waits behind another of its key is not counted"),
    Metric("retry_oldest_due_seconds", GAUGE, (),
           "how long ago the oldest waiting entry was due, looked at every 10 s; 0 where none was"),
    Metric("retry_shards_owned", GAUGE, (), "shards of this worker"),
    Metric("retry_shards_ready", GAUGE, (), "those that are swept"),
    Metric("retry_shards_read_only", GAUGE, (), "those that stand since a newer version wrote there"),
    Metric("retry_shards_halted", GAUGE, (), "those that stand since a stranger wrote there"),
    Metric("retry_shard_ready", GAUGE, ("shard",), "1 if the shard is swept and gets on; the shards of this worker only"),
    Metric("retry_shard_waiting", GAUGE, ("shard",), "entries that wait in the shard; the shards of this worker only"),
    Metric("retry_shard_restored_ratio", GAUGE, ("shard",), "how much of what a shard had to read when it was opened is read"),
    Metric("retry_restore_records", GAUGE, (), "changelog records that restoring shards have still to read"),
    Metric("retry_shards_standing_by", GAUGE, (), "copies of shards that others own"),
    Metric("retry_standby_lag_records", GAUGE, (), "changelog records that these copies are behind"),
    Metric("retry_intake_read_only", GAUGE, (),
           "1 while no letter is taken in, since a newer version wrote the record of lineages"),
    Metric("retry_held", GAUGE, ("reason",),
           "how many lanes, shards or parts of the worker wait: lanes `paused`, `not_allowed`, `refused`, `breaker`, `limit`; "
           "shards `opening`, `restoring`, `read_only`, `halted`, `broken`; parts `failing`, `stalled`; "
           "the worker `brokers`, `clock`, `policy_file`"),
    Metric("retry_lanes_held", GAUGE, (),
           "lanes (team, dead-letter topic, target) that have something due and may not send it; `/health/ready` says why"),
    Metric("retry_breaker_open", GAUGE, ("target",),
           "1 while a breaker is open, 0.5 while it is half open; 0 for closed ones that the policy file names"),
    Metric("retry_paused", GAUGE, ("scope",), "pauses that stand, by what they name: `all`, `team`, `topic`, `target`"),
    Metric("retry_clock_believed", GAUGE, (), "0 while nothing is delivered since this worker's clock is not the brokers'"),
    Metric("retry_lineages", GAUGE, (), "lineages that are remembered"),
    Metric("retry_policy_file_valid", GAUGE, (), "0 while a changed policy file is refused and the old one stays"),
    Metric("retry_policy_file_refused", GAUGE, (), "how often it was refused since the start"),
    Metric("retry_retention_left_seconds", GAUGE, ("topic",),
           "until Kafka may delete the oldest letter of a dead-letter topic among those that wait here, "
           "looked at every minute, up to 100 of each lane; negative where it may be gone"),
    Metric("retry_positions_written_total", COUNTER, (), "samples of what consumer groups have committed"),
    Metric("retry_positions_failed_total", COUNTER, (), "groups that could not be asked, or samples that could not be written"),
    Metric("retry_positions_lag_seconds", GAUGE, (),
           "since when a group of this worker has not been sampled; 0 where it samples none"),
)  # fmt: skip

SCHEDULER = (
    Metric("kafka_scheduler_event_total", COUNTER, ("type",), "events by the types of the Go scheduler; see docs/scheduler.md"),
)  # fmt: skip

API = (
    Metric("retry_api_requests_total", COUNTER, ("method", "status"), "requests that were answered"),
    Metric("retry_api_request_seconds", HISTOGRAM, (), "how long that took"),
    Metric("retry_api_entries_waiting", GAUGE, (), "named entries that wait, of all doors"),
    Metric("retry_api_ready", GAUGE, (), "1 while all is read"),
)

DECLARED = {metric.name: metric for metric in (*WORKER, *SCHEDULER, *API)}

_HEAD = """# Metrics

Written by `python -m retry.telemetry.metric_catalogue`; the code makes its metrics from the same table.
With `--processes` each has one label more, `process`. Names of teams, policies, topics and targets are those of the policy file,
so it bounds their number.
"""


def document() -> str:
    """docs/metrics.md."""
    parts = [_HEAD]
    sections = (
        ("Worker", "`/metrics` of `retry worker`", WORKER),
        ("Scheduler", "`/metrics` of `retry scheduler`: those of a worker, and", SCHEDULER),
        ("API", "`/metrics` of `retry api`", API),
    )
    for title, where, metrics in sections:
        rows = [f"| `{m.name}` | {m.type} | {', '.join(m.labels)} | {m.meaning} |" for m in metrics]
        parts.append("\n".join([f"## {title}\n", f"{where}:\n", "| name | type | labels | meaning |", "| --- | --- | --- | --- |",
                                *rows, ""]))  # fmt: skip
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(document())
