"""Each alert fires on its cause, alone, and none of them on a healthy deployment: `promtool test rules`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.chart import CHART
from tests.support.promql import RULES
from tests.support.tools import run

pytestmark = pytest.mark.check

Series = dict[str, str]
FILES = sorted((CHART / "files" / "rules").glob("*.yaml"))
HOUR = 60

_W0, _W1 = 'app="a",instance="w0"', 'app="a",instance="w1"'
_PARKED = 'retry_letters_parked_total{app="a",team="t",policy="t/x",reason="max_attempts"}'
# A minute a step, thirty hours.
HEALTHY: Series = {
    f"retry_shards_owned{{{_W0}}}": "4x1800",
    f"retry_shards_owned{{{_W1}}}": "4x1800",
    f"retry_shards_ready{{{_W0}}}": "4x1800",
    f"retry_shards_ready{{{_W1}}}": "4x1800",
    f"retry_shards_read_only{{{_W0}}}": "0x1800",
    f"retry_shards_halted{{{_W0}}}": "0x1800",
    f"retry_intake_read_only{{{_W0}}}": "0x1800",
    f"retry_clock_trusted{{{_W0}}}": "1x1800",
    f"retry_clock_trusted{{{_W1}}}": "1x1800",
    f'retry_blocked{{{_W0},reason="failing"}}': "0x1800",
    f'retry_blocked{{{_W0},reason="rate_limit"}}': "3x1800",
    f"retry_policy_file_valid{{{_W0}}}": "1x1800",
    f"retry_restore_remaining_records{{{_W0}}}": "500000-25000x20 0x1780",
    f"retry_standby_lag_records{{{_W0}}}": "300x1800",
    'retry_api_ready{app="a",instance="api"}': "0x5 1x1795",
    'retry_api_certificate_ends_timestamp_seconds{app="a",instance="api"}': "7776000x900 7830060x900",
    'retry_api_certificate_ends_timestamp_seconds{app="a",instance="without"}': "Inf+0x1800",
    f"retry_client_certificate_begins_timestamp_seconds{{{_W0}}}": "-86400x1800",
    f"retry_client_certificate_ends_timestamp_seconds{{{_W0}}}": "86400x720 172800x1080",
    f"retry_client_certificate_begins_timestamp_seconds{{{_W1}}}": "0x1800",
    f"retry_client_certificate_ends_timestamp_seconds{{{_W1}}}": "Inf+0x1800",
    'retry_console_ready{app="a",instance="console"}': "0x5 1x1795",
    'retry_console_lag_records{app="a",instance="console"}': "400000-100000x4 40x1796",
    f"retry_offset_sample_age_seconds{{{_W0}}}": "9x1800",
    f"retry_oldest_due_seconds{{{_W0}}}": "0 4 90 2x1797",
    f'retry_entries_sent_total{{{_W0},team="t"}}': "0+60x1800",
    f"retry_lanes_blocked{{{_W0}}}": "0x1800",
    f'retry_entries_held{{{_W0},key="k1"}}': "_x30 4000x5 0x1765",
    f'retry_lateness_seconds_bucket{{{_W0},team="t",le="0.1"}}': "0+55x1800",
    f'retry_lateness_seconds_bucket{{{_W0},team="t",le="30.0"}}': "0+60x1800",
    f'retry_lateness_seconds_bucket{{{_W0},team="t",le="300.0"}}': "0+60x1800",
    f'retry_lateness_seconds_bucket{{{_W0},team="t",le="+Inf"}}': "0+60x1800",
    f'retry_circuit_breaker_open{{{_W0},target="r"}}': "0x30 1x5 0.5x5 0x1760",
    f'retry_paused{{{_W0},scope="team"}}': "0x30 1x600 0x1170",
    f'retry_entries_deferred_total{{{_W0},target="r"}}': "0x1800",
    f'retry_hosts_blocked{{{_W0},state="open"}}': "0x30 2x10 0x1760",
    f'retry_retention_left_seconds{{{_W0},topic="x"}}': "600000x1800",
    _PARKED: "0+0.5x1800",
    f'retry_recovery_window_sent{{{_W0},team="t",policy="t/x",attempt="1"}}': "500x1800",
    f'retry_recovery_window_failed_again{{{_W0},team="t",policy="t/x",attempt="1"}}': "120x1800",
}


class Case(NamedTuple):
    """One deployment that is not as a healthy one, and what then fires at that minute; None takes a series away."""

    about: str
    otherwise: dict[str, str | None]
    fires: set[str]
    minute: int = 2 * HOUR


CASES = [
    Case("healthy", {}, set(), 30),
    Case("healthy for long", {}, set(), 26 * HOUR),
    Case("no worker", dict.fromkeys(HEALTHY), {"RetryNoWorkers"}),
    Case("a worker is gone", {f"retry_{name}{{{_W1}}}": "4x100 stale" for name in ("shards_owned", "shards_ready")},
         {"RetryShardsUnowned"}),
    Case("a worker came back", {f"retry_{name}{{{_W1}}}": "4x100 stale _x4 4x1500" for name in ("shards_owned", "shards_ready")},
         set()),
    Case("shards are not swept", {f"retry_shards_ready{{{_W1}}}": "4x60 2x1740"}, {"RetryShardsNotReady"}),
    Case("a newer version wrote to a shard", {f"retry_shards_read_only{{{_W0}}}": "0x60 1x1740"}, {"RetryShardReadOnly"}),
    Case("a newer version wrote positions", {f"retry_intake_read_only{{{_W0}}}": "0x60 1x1740"}, {"RetryShardReadOnly"}),
    Case("a shard met what it cannot act on", {f"retry_shards_halted{{{_W0}}}": "0x60 1x1740"}, {"RetryShardHalted"}),
    Case("a stranger writes, of whom nothing was known", {
        f'retry_unreadable_records_total{{{_W0},topic="a-calls"}}': "_x100 1x1700",
    }, {"RetryUnreadableRecords"}),
    Case("a stranger writes more", {
        f'retry_unreadable_records_total{{{_W0},topic="a-lineage"}}': "7x90 9x1710",
    }, {"RetryUnreadableRecords"}),
    Case("a stranger wrote long ago", {f'retry_unreadable_records_total{{{_W0},topic="a-audit"}}': "7x1800"}, set()),
    Case("a key is lost", {f'retry_entries_held{{{_W0},key="k1"}}': "0x60 7x1740"}, {"RetryEntriesHeld"}),
    Case("a key is lost, and nothing else is there to be sent", {
        f'retry_entries_held{{{_W0},key="k1"}}': "0x60 7x1740", f"retry_oldest_due_seconds{{{_W0}}}": "0x60 300x1740",
        f'retry_entries_sent_total{{{_W0},team="t"}}': None,
    }, {"RetryEntriesHeld"}),
    Case("a clock is wrong", {f"retry_clock_trusted{{{_W1}}}": "1x60 0x1740"}, {"RetryClockNotTrusted"}),
    Case("a part fails", {f'retry_blocked{{{_W0},reason="failing"}}': "0x60 1x1740"}, {"RetryPartFailing"}),
    Case("brokers do not answer", {f'retry_blocked{{{_W1},reason="brokers"}}': "0x60 1x1740"}, {"RetryPartFailing"}),
    Case("a policy file is refused", {f"retry_policy_file_valid{{{_W0}}}": "1x60 0x1740"}, {"RetryPolicyFileRefused"}),
    Case("a restore takes long", {
        f"retry_restore_remaining_records{{{_W0}}}": "0x60 90000000-100000x1740",
    }, {"RetryRestoreSlow"}),
    Case("copies are behind", {f"retry_standby_lag_records{{{_W0}}}": "300x60 200000x1740"}, {"RetryStandbyLag"}),
    Case("the API does not read", {'retry_api_ready{app="a",instance="api"}': "1x60 0x1740"}, {"RetryApiNotReady"}),
    Case("a certificate was not renewed", {
        'retry_api_certificate_ends_timestamp_seconds{app="a",instance="api"}': "608400x1800",
    }, {"RetryCertificateEnds"}),
    Case("a client certificate was not renewed", {
        f"retry_client_certificate_begins_timestamp_seconds{{{_W0}}}": "-18000x1800",
        f"retry_client_certificate_ends_timestamp_seconds{{{_W0}}}": "3600x1800",
    }, {"RetryClientCertificateEnds"}),
    Case("the console does not read", {'retry_console_ready{app="a",instance="console"}': "1x60 0x1740"}, {"RetryConsoleBehind"}),
    Case("the console is behind", {
        'retry_console_lag_records{app="a",instance="console"}': "0x60 200000x1740",
    }, {"RetryConsoleBehind"}),
    Case("groups are not sampled", {f"retry_offset_sample_age_seconds{{{_W0}}}": "9x60 10+60x1740"}, {"RetryOffsetSamplesStale"}),
    Case("overdue, and some is sent", {f"retry_oldest_due_seconds{{{_W0}}}": "0x60 0+60x1740"}, {"RetryBacklogOverdue"}),
    Case("due, and nothing is sent", {
        f"retry_oldest_due_seconds{{{_W0}}}": "0x60 300x1740", f'retry_entries_sent_total{{{_W0},team="t"}}': "0+60x60 3600x1740",
    }, {"RetryNoProgress"}),
    Case("due, and nothing was ever sent", {
        f"retry_oldest_due_seconds{{{_W0}}}": "0x60 300x1740", f'retry_entries_sent_total{{{_W0},team="t"}}': None,
    }, {"RetryNoProgress"}),
    Case("due, and held", {
        f"retry_oldest_due_seconds{{{_W0}}}": "0x60 300x1740", f'retry_entries_sent_total{{{_W0},team="t"}}': None,
        f"retry_lanes_blocked{{{_W0}}}": "1x1800",
    }, set()),
    Case("late", {f'retry_lateness_seconds_bucket{{{_W0},team="t",le="30.0"}}': "0+57x1800"}, {"RetryLate"}),
    Case("a breaker stays open", {
        f'retry_circuit_breaker_open{{{_W0},target="r"}}': "0x60 1x20 0.5x2 1x1718",
    }, {"RetryCircuitBreakerOpen"}),
    Case("a target refuses", {f'retry_blocked{{{_W0},reason="refused"}}': "0x60 1x1740"}, {"RetryTargetRefused"}),
    Case("a target is not allowed", {f'retry_blocked{{{_W0},reason="not_allowed"}}': "0x60 1x1740"}, {"RetryTargetRefused"}),
    Case("a pause is forgotten", {f'retry_paused{{{_W0},scope="team"}}': "1x1800"}, {"RetryPausedLong"}, 25 * HOUR),
    Case("records are too large", {f'retry_entries_deferred_total{{{_W0},target="r"}}': "0x60 0+2x1740"}, {"RetryTooLarge"}),
    Case("hosts refuse", {f'retry_hosts_blocked{{{_W0},state="open"}}': "0x60 2x1740"}, {"RetryHostsBlocked"}),
    Case("retention is near", {f'retry_retention_left_seconds{{{_W0},topic="x"}}': "27000-60x1800"}, {"RetryRetentionNear"}),
    Case("more is parked than a day before", {_PARKED: "0+0.5x1560 780+10x240"}, {"RetryParkedSurge"}, 27 * HOUR),
    Case("as much is parked as a day before", {_PARKED: "0+10x1800"}, set(), 29 * HOUR),
    Case("retries do not help", {f'retry_recovery_window_failed_again{{{_W0},team="t",policy="t/x",attempt="1"}}': "480x1800"},
         {"RetryRecoveryPoor"}),
    Case("few retries do not help", {
        f'retry_recovery_window_sent{{{_W0},team="t",policy="t/x",attempt="1"}}': "10x1800",
        f'retry_recovery_window_failed_again{{{_W0},team="t",policy="t/x",attempt="1"}}': "10x1800",
    }, set()),
]  # fmt: skip


def test_every_alert_has_a_case() -> None:
    assert {name for case in CASES for name in case.fires} == {rule["alert"] for rule in RULES}


def test_rules_are_well_formed() -> None:
    checked = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", *FILES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
def test_what_fires(case: Case, tmp_path: Path) -> None:
    # A day by the minute would take seconds.
    every = "1m" if case.minute <= 2 * HOUR else "10m"
    about = {"rule_files": [str(path) for path in FILES], "evaluation_interval": every, "tests": [_test(case)]}
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump(about))
    tested = run("promtool", "test", "rules", file)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _test(case: Case) -> dict[str, Any]:
    series = {name: values for name, values in {**HEALTHY, **case.otherwise}.items() if values is not None}
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(case.fires)]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{case.minute}m", "exp_samples": firing}],
    }
