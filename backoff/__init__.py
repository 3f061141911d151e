"""Pure retry policy: the attempt, the times and a draw in; a decision out. Standard library only.

| name | what it is |
| --- | --- |
| `Constant`, `Linear`, `Exponential`, `Steps` | curves: attempt → delay in ms |
| `JITTERS` | by name: none, full, equal, proportional: (delay in ms, draw) → delay in ms |
| `Policy` | curve, jitter, bounds and calendar; `decide` gives a `Decision`: `RetryAt(due_at_ms)` or `Park(reason)` |
| `Calendar`, `Cron`, `QuietHours` | a due time → the next that is allowed, by the clocks of a time zone |
| `Limit`, `Bucket` | so many in so long, and how many of them may go now |
| `backoff.parse` | plain mappings and texts → the values above; `duration_ms` and `duration_text` |
| `PolicyInvalid` | what is wrong with a mapping, and where |

The first five delays of each curve:

>>> def first_five(curve):
...     return [duration_text(curve(attempt)) for attempt in range(1, 6)]
>>> first_five(Constant(delay_ms=30_000, max_delay_ms=3_600_000))
['30s', '30s', '30s', '30s', '30s']
>>> first_five(Linear(delay_ms=10_000, step_ms=20_000, max_delay_ms=3_600_000))
['10s', '30s', '50s', '1m10s', '1m30s']
>>> first_five(Exponential(delay_ms=10_000, factor=2.0, max_delay_ms=3_600_000))
['10s', '20s', '40s', '1m20s', '2m40s']
>>> first_five(Steps(delays_ms=(60_000, 300_000, 1_800_000), max_delay_ms=3_600_000))
['1m', '5m', '30m', '30m', '30m']

A decision, half a minute after the second failure:

>>> policy = Policy(
...     curve=Exponential(delay_ms=10_000, factor=2.0, max_delay_ms=3_600_000),
...     jitter=JITTERS["none"], max_attempts=8, max_age_ms=259_200_000, max_delay_ms=3_600_000, honour_retry_at=True)
>>> policy.decide(attempt=2, first_failed_at_ms=0, failed_at_ms=10_000, now_ms=40_000, draw=0.5)
RetryAt(due_at_ms=30000)
>>> policy.decide(attempt=9, first_failed_at_ms=0, failed_at_ms=10_000, now_ms=40_000, draw=0.5)
Park(reason='max_attempts')
"""

from __future__ import annotations

from backoff.calendar import Calendar, QuietHours
from backoff.cron import Cron
from backoff.duration import duration_ms, duration_text
from backoff.errors import PolicyInvalid
from backoff.policy import JITTERS, Constant, Decision, Exponential, Linear, Park, Policy, RetryAt, Steps
from backoff.rate_limit import Bucket, Limit

__all__ = [
    "JITTERS", "Bucket", "Calendar", "Constant", "Cron", "Decision", "Exponential", "Limit", "Linear", "Park", "Policy",
    "PolicyInvalid", "QuietHours", "RetryAt", "Steps", "duration_ms", "duration_text",
]  # fmt: skip

# Another package has this name, too: commands look whose they got.
DISTRIBUTION = "dead-letter-retry"
