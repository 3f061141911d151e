"""What `retry act` and `retry actions` print of an action: its preview, how far it has come, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from backoff import duration_text
from retry.cli.output import say, say_json, say_lines
from retry.clock import Deadline, iso

if TYPE_CHECKING:
    from retry.delay_queue.action_records import Action, Tally
    from retry.operations.act.choose import Chosen
    from retry.operations.act.overview import Following
    from retry.operations.act.preview import Preview

_PROGRESS_S = 5.0


def print_preview(found: Preview, *, as_json: bool) -> None:
    from retry.operations.act.action_report import preview_object
    from retry.operations.act.preview import describe_reason

    chosen, action = found.chosen, found.request.action
    if as_json:
        say_json(preview_object(found))
        return
    say(f"{chosen.count:,} letters to {action.kind}" + (f" to {action.target}" if action.target else ""))
    for name, groups in chosen.groups.items():
        # Of what waits there is no reason to be told.
        if groups.keys() - {""} or (groups and name != "reason"):
            say(f"  by {name}: {_format_counts(groups)}")
    say_lines(_orders(chosen, action.kind))
    if action.ramp is not None:
        say(f"  in steps of {', '.join(f'{size:,}' for size in action.ramp.steps)}, as long as {action.ramp.keep:.0%} recover")
        if found.silent:
            silence = duration_text(action.ramp.silence_ms)
            say(f"  no consumer group is named for {', '.join(found.silent)}: their steps have passed after {silence} of silence")
    for change in found.examples:
        say(f"  {change.letter} → due {iso(change.due_at_ms)} to {change.target}")
        say_lines(f"    {line}" for line in change.diff)
    say_lines(f"{n:,} more are left alone: {describe_reason(reason)}" for reason, n in chosen.refused.most_common())


def _orders(chosen: Chosen, kind: str) -> Iterator[str]:
    """Yield lines on the letters whose policy keeps the order of their record key; none where there are no such letters."""
    from retry.operations.act.action_report import order_objects, order_told

    if chosen.ordered:
        yield f"  {chosen.ordered:,} keep an order: {order_told(kind)}"
        for each in order_objects(chosen):
            whose = "further keys" if each["key"] is None else f"key {each['key']}"
            yield f"    {whose} of {each['topic']}: {each['letters']:,}"


def wait(following: Following, action: Action, wait_ms: int) -> list[int]:
    """Follow until all is done, or held, or the time is over; shards that are not done."""
    deadline, spoken = Deadline(wait_ms / 1_000), Deadline(_PROGRESS_S)
    while (left := following.list_left(action)) and following.held is None and not deadline.has_passed():
        if following.poll_progress() and spoken.has_passed():
            ramp = action.ramp
            step = "" if ramp is None else f", step {ramp.find_open_step(following.step)} of {len(ramp.steps)}"
            say(f"{following.tally.members:,} of {action.members:,} letters{step}", err=True)
            spoken = Deadline(_PROGRESS_S)
    return left


def result(action_id: bytes, action: Action, following: Following, left: list[int], *, as_json: bool) -> None:
    from retry.operations.act.action_report import describe_order, tally_object

    tally, held = following.tally, following.held
    if as_json:
        about = {"action": action_id.hex(), "kind": action.kind, "members": action.members, **tally_object(tally)}
        say_json({**about, "shards_left": left, "held": describe_order(held)})
    else:
        say(told_tally(tally))
    if held is not None:
        say(f"held by {held.by}: {held.reason or 'no reason given'}; to go on: retry actions resume {action_id.hex()}", err=True)
    elif left:
        shards = ", ".join(map(str, left))
        say(f"not done yet in shards {shards}: a worker does it; retry actions show {action_id.hex()}", err=True)


def told_tally(tally: Tally) -> str:
    refused = "".join(f", {number:,} {reason}" for reason, number in sorted(tally.refused.items()))
    gone = f", {tally.gone:,} gone (sent or moved before)" if tally.gone else ""
    return f"{tally.done:,} done{gone}{refused}"


def _format_counts(groups: Counter[str]) -> str:
    from retry.operations.act.action_report import GROUPS_SHOWN

    most = groups.most_common(GROUPS_SHOWN)
    rest = sum(groups.values()) - sum(number for _, number in most)
    shown = [f"{name or 'not known'} {number:,}" for name, number in most]
    return ", ".join([*shown, f"others {rest:,}"] if rest else shown)
