"""Findings of a report, made up by a seed, so that the page can be tried without Spark."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from retry.analytics.advice.actions import PerRetry, choose_actions, follow_up
from retry.analytics.advice.evidence import Cell, Evidence, Kind
from retry.analytics.advice.policy_rewrite import Advised
from retry.analytics.advice.summary import choose_advice_by_kind, make_advice_rows, sum_saving
from retry.analytics.questions import recovery

Rows = list[dict[str, Any]]
_HOUR_MS = 3_600_000
UNTIL_MS = 1_795_284_667_270
SINCE_MS = UNTIL_MS - 36 * _HOUR_MS
CHANCES: Mapping[tuple[str, str], tuple[int, Sequence[float]]] = {
    ("payments", "com.acme.pay.GatewayTimeout"): (4_000, (0.62, 0.45, 0.3, 0.22, 0.02, 0.0, 0.0, 0.0)),
    ("payments", "com.acme.pay.CardDeclined"): (2_500, (0.0,) * 8),
    ("orders", "org.postgresql.util.PSQLException"): (1_800, (0.3, 0.5, 0.5, 0.4, 0.1, 0.0)),
    ("search", "io.elastic.RejectedExecution"): (900, (0.5, 0.2, 0.05, 0.0)),
    ("search", "io.elastic.NodeClosed"): (60, (0.5, 0.2)),
}


def findings(names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Make what `retry.analytics.findings` gives, with advice; names of teams and exceptions, and `topic`, may be replaced."""
    called = names or {}
    chance = random.Random(1)
    kinds = {(called.get(team, team), called.get(each, each)): made for (team, each), made in CHANCES.items()}
    evidence = {Kind(*kind): _evidence(chance, *made) for kind, made in kinds.items()}
    advice = choose_advice_by_kind(evidence)
    policies = [(team, f"{team}/{called.get('topic', 'x.DLT')}") for team in dict.fromkeys(team for team, _ in kinds)]
    topic = called.get("topic", "x.DLT")
    top = _fingerprints(list(kinds), topic)
    actions = choose_actions(
        [Advised(kind.team, str(kind.exception), (topic,), False, each) for kind, each in advice.items()],
        per_retry=PerRetry(900, 0.002, 150), period_ms=UNTIL_MS - SINCE_MS,
    )  # fmt: skip
    return {
        "about": {
            "app": "retry", "source": called.get("topic", "retry-outcomes"), "settle_ms": 600_000, "version": "1.2.3",
            "file": None,
        },
        "actions": [row | {"console": f"https://console.example/failures/{n:016x}"} for n, row in enumerate(actions)],
        "followed_up": follow_up(actions[:3], {
            Kind(kind.team, kind.exception, (topic,)): each for n, (kind, each) in enumerate(evidence.items()) if n != 1
        }),
        "forecast": [
            {"team": team, "letters": 9_100.4, "letters_low": 4_100.2, "letters_high": 16_003.3, "recovered": 6_200.1,
             "recovered_low": 2_900.7, "recovered_high": 11_400.9, "episodes": 12, "weeks": 4.5}
            for team in (None, *dict.fromkeys(team for team, _ in kinds))
        ],
        "unwatched": [{"team": policies[0][0], "topic": topic, "retries": 77}],
        "unsampled": [{"team": t, "policy": p, "target": topic, "retries": 31 + n} for n, (t, p) in enumerate(policies)],
        "odd": {"letters": 2, "first_ms": 1_390_000_000_000},
        "days_missing": ["2026-11-07", "2026-11-08"],
        "teams": [{"team": t} | _totals() for t, _ in policies],
        "totals_before": {name: value * 0.9 if name.startswith("recovery") else value + 11 for name, value in _totals().items()},
        "period": {"since_ms": SINCE_MS, "until_ms": UNTIL_MS},
        "before": {"since_ms": 2 * SINCE_MS - UNTIL_MS, "until_ms": SINCE_MS},
        "cost": {"per_retry": 0.002, "retries": 29.48, "wasted": 9.1},
        "consumer_ms": {"per_retry": 150, "retries": 4_687_500, "wasted": 2_460_000},
        "changed": [
            {"team": t, "policy": p, "letters": 900, "letters_before": 850, "retries": 2_000, "retries_before": 3_100,
             "recovered": 700, "recovered_before": 660, "parked": 180, "parked_before": 170, "expired": 9, "expired_before": 8,
             "unknown": 11, "unknown_before": 12, "recovery": 0.78, "recovery_before": 0.7, "is_clear": not n,
             "policy_changes": [] if n else ["max_attempts 8 → 5", "attempt 1 after 10s → 1m"]}
            for n, (t, p) in enumerate(policies)
        ],
        "totals": _totals(),
        "assumed": 0,
        "not_counted": [{"why": "unreadable", "records": 4}, {"why": "version 3", "records": 1}],
        "worth": make_advice_rows(evidence, advice),
        "saving": sum_saving(advice),
        "incidence_by_attempt": _by_attempt(policies),
        "incidence_by_time": _by_time(policies),
        "time_to_recovery": _times(policies, 3_000, "recovered"),
        "waste": [{"team": t, "exception": e, "retries": 900, "wasted": 300, "bytes": 9, "wasted_bytes": 3} for t, e in kinds],
        "comparison": [
            {"team": t, "policy": p, "letters": 900, "recovered": 700, "parked": 180, "expired": 9, "discarded": 3, "unknown": 11,
             "waiting": 4, "retries": 2_000, "recovery": 0.78, "recovery_low": 0.75, "recovery_high": 0.81} for t, p in policies
        ],
        "acted": [
            {"team": t, "action_kind": kind, "letters": 60, "recovered": 40, "failed": 9, "open": 2, "parked": 4, "discarded": 5}
            for t, _ in policies for kind in ("retry", "discard")
        ],
        "parked_by_reason": [
            {"team": t, "policy": p, "reason": reason, "letters": 90} for t, p in policies for reason in ("max_attempts", "rule")
        ],
        "fingerprints": top,
        "fingerprints_over_time": [
            {**{name: row[name] for name in ("team", "exception", "fingerprint")}, "failures": chance.randint(1, 40),
             "at_ms": SINCE_MS + n * _HOUR_MS, "until_ms": SINCE_MS + (n + 1) * _HOUR_MS} for row in top for n in range(36)
        ],
        "lateness": _times(policies, 20, "measured"),
        "storms": [
            {"team": policies[0][0], "minute_ms": SINCE_MS + 20 * _HOUR_MS, "sent": 900, "median": 31, "times": 29.0,
             "minutes": 140},
        ],
        "retries_over_time": [
            {"team": t, "minute_ms": SINCE_MS + n * _HOUR_MS, "sent": chance.randint(10, 60)}
            for t, _ in policies for n in range(36)
        ],
        "near_retention": [
            {"team": policies[0][0], "topic": called.get("topic", "x.retry"), "kind": kind, "letters": 12, "left_ms": left_ms}
            for kind, left_ms in (("retry", 5 * _HOUR_MS), ("parked", -5))
        ],
        "retention_known": True,
    }  # fmt: skip


def _evidence(chance: random.Random, letters: int, chances: Sequence[float]) -> Evidence:
    cells = []
    for attempt, likely in enumerate(chances, 1):
        recovered = sum(chance.random() < likely for _ in range(letters))
        cells.append(Cell(attempt, 1_000 * 2**attempt, recovered, letters - recovered))
        letters -= recovered
    return Evidence.from_cells(cells)


def _totals() -> dict[str, Any]:
    counts = {
        "letters": 9_260,
        "recovered": 6_300,
        "parked": 2_700,
        "expired": 120,
        "discarded": 14,
        "unknown": 140,
        "waiting": 60,
        "retries": 31_250,
        "wasted": 16_400,
    }
    times = {"p50_ms": 14_000, "p90_ms": 95_000, "p99_ms": 700_000, "max_ms": 900_000}
    bounds = {"recovery": 0.69, "recovery_low": 0.68, "recovery_high": 0.7, "episodes": 38}
    return {**counts, **times, **bounds, "bytes": 28_000_000, "wasted_bytes": 14_000_000}


def _by_attempt(policies: list[tuple[str, str]]) -> Rows:
    rows: Rows = []
    for nth, (team, _) in enumerate(policies):
        left = 900
        for attempt in range(9):
            parked, recovered = (left if attempt == 8 else 10 * nth), 0 if attempt in (0, 8) else int(left * (0.4 - 0.1 * nth))
            counts = {"recovered": recovered, "parked": parked if attempt in (0, 8) else 0, "expired": 0}
            rows.append({"team": team, "attempt": attempt, "at_risk": left, **counts})
            left -= sum(counts.values())
    return recovery.build_attempt_curves(rows, "team")


def _by_time(policies: list[tuple[str, str]]) -> Rows:
    rows: Rows = []
    for nth, (team, _) in enumerate(policies):
        for step in range(80, 176, 8):
            counts = {"recovered": 60 - 10 * nth, "parked": 5 * nth, "expired": 1}
            rows.append({"team": team, "step": step, "left": sum(counts.values()) + 2, **counts})
    return recovery.build_time_curves(rows, "team")


_PERCENTILES = (("p50", 1), ("p90", 7), ("p99", 40), ("max", 50))


def _times(policies: list[tuple[str, str]], base_ms: int, of: str) -> Rows:
    return [
        {"team": t, "policy": p, of: 9 * n, **{f"{name}_ms": base_ms * n * times for name, times in _PERCENTILES}}
        for n, (t, p) in enumerate(policies, 1)
    ]


def _fingerprints(kinds: list[tuple[str, str]], topic: str) -> Rows:
    return [
        {"team": t, "exception": e, "fingerprint": f"{n:016x}", "failures": 900, "lineages": 800, "parked": 10,
         "first_seen_ms": SINCE_MS, "last_seen_ms": UNTIL_MS, "earlier": (0, 300, 600, 450, 1)[n % 5], "recent": 450,
         "samples": [f"{topic}/0/{n}"], "explain": [f"retry explain {shlex.quote(f'{topic}/0/{n}')}"]}
        for n, (t, e) in enumerate(kinds)
    ]  # fmt: skip
