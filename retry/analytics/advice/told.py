"""Advice on one kind of failure, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backoff import duration_text
from retry.analytics.advice.delays import merge_delays
from retry.analytics.html.format import at_most, noun


def sentence(row: Mapping[str, Any]) -> str:
    """Say in words what to do, what that saves, and what it keeps.

    Args:
      row: see `retry.analytics.advice.summary.worth`.
    """
    if row["verdict"] == "unknown":
        return f"too few; {row['missing']:,} more whose end is known {noun(row['missing'], 'is', 'are')} needed"
    is_fewer = row["verdict"] == "fewer"
    attempts = f"keep {row['attempts']} {noun(row['attempts'], 'attempt')}"
    parts = [f"{row['attempts']} of {row['attempts_now']} attempts" if is_fewer else attempts]
    for first, last, delay_ms in merge_delays(row["delays_ms"]):
        parts.append(f"attempt{f' {first}' if first == last else f's {first} to {last}'} after {duration_text(delay_ms)}")
    if is_fewer:
        parts.append(f"saves {row['saved']:,.0f} {noun(row['saved'], 'retry', 'retries')}")
        kept = f"keeps at least {row['kept_low']:.1%} of the recoveries"
        never = f"none ever recovered, at most {at_most(row['recoveries_at_risk'])} would; one stays as a probe"
        parts.append(kept if row["recoveries_now"] else never)
    if row["missing"]:
        parts.append(f"{row['missing']:,} more last {noun(row['missing'], 'attempt')} would tell whether that one is worth it")
    return ", ".join(parts)
