"""What `retry actions show` prints of a ramp: each step with its letters, and why it is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retry.operations.act.overview import ActionOverview

WAITS, OPEN, PASSED = "waits", "open", "passed"


def ramp_object(about: ActionOverview) -> dict[str, Any] | None:
    """A ramp, for JSON; None where the action is none."""
    if (ramp := about.action.ramp) is None:
        return None
    return {
        "keep": ramp.keep, "settle_ms": ramp.settle_ms, "silence_ms": ramp.silence_ms, "counts_from": about.step.since + 1,
        "passed_in_silence": about.step.silent, "steps": [_step(about, n) for n in range(len(ramp.steps))],
    }  # fmt: skip


def _step(about: ActionOverview, n: int) -> dict[str, Any]:
    """One step; its bound is that of all steps that count, up to this one."""
    from retry.delay_queue.ramp_records import Step
    from retry.delivery.ramp import recovering, upper_bound

    counts, step = about.steps[n], about.step
    status = PASSED if n < step.step else WAITS if n > step.step else OPEN
    recovered, put = recovering(about.steps, step if n >= step.since else Step(), n)
    return {
        "step": n + 1, "status": "held" if status == OPEN and step.held_ms else status, "letters": counts.members,
        "worked": counts.worked, "put": counts.put, "sent": counts.sent, "failed": counts.failed,
        "passed": counts.recovered if status == PASSED else 0,
        "bound": round(upper_bound(recovered, put), 4) if counts.put and put else None,
    }  # fmt: skip
