"""What an action did to each letter, as records of the audit topic: JSON, at most 500 letters in one.

| field | meaning |
| --- | --- |
| `v` | 1 |
| `action`, `kind`, `by`, `reason` | its id in hexadecimal, what was asked, who asked, and why, in the operator's words |
| `at_ms`, `shard` | when it was done, and in which shard |
| `teams` | whose letters the action is about; empty where that was not written down |
| `letters` | list of objects: `letter` is `topic/partition/offset` of the dead letter, `parked` that of the record that rested |
| `result` | `done`, `gone`, or why nothing was done for it |
| `due_ms`, `target`, `new_due_ms`, `new_target` | before and after |
| `before`, `after` | of an edit or a patch: digests, see `digest_content`; of a patched one that rested, no `before` |

A letter as it was before is found by its action and its digest: what waited or was edited was copied to the topic of discarded
letters, and what rested lies at `parked`, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from retry.dead_letters import retry_headers as names
from retry.dead_letters.dead_letter import parse_integer, parse_moment
from retry.delay_queue import action_records, entry_keys, returned_offsets
from retry.delay_queue.action_records import Member
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelope_codec import PLAIN, EnvelopeCodec
from retry.delay_queue.envelopes import Entry
from retry.delivery.acted_entry import BY_OPERATOR
from retry.delivery.letter_changes import ActedLetter, Refusal, WithdrawnPlace
from retry.record import Headers
from retry.telemetry import outcomes
from retry.telemetry.outcomes import ActionOutcome, LettersByShared, SharedFields

_AUDITED_MAX = action_records.MEMBERS_MAX
DONE = "done"
Result = ActedLetter | WithdrawnPlace | Refusal


def make_audit_records(
    state: ActionState, results: Sequence[tuple[Member, Result]], topic: str, shard: int, now_ms: int, codec: EnvelopeCodec
) -> list[Entry]:
    action = state.action
    told = {
        "v": 1, "action": state.id.hex(), "kind": action.kind, "by": action.by, "reason": action.reason, "at_ms": now_ms,
        "shard": shard, "teams": action.teams,
    }  # fmt: skip
    letters = [_result(member, result, action.parking) | _digests(action.kind, result, codec) for member, result in results]
    parts = [letters[n : n + _AUDITED_MAX] for n in range(0, len(letters), _AUDITED_MAX)]
    key = state.id.hex().encode()
    return [Entry(topic, key, orjson.dumps({**told, "letters": part}), [], now_ms, "") for part in parts]


def digest_content(key: bytes | None, value: bytes | None, headers: Headers, codec: EnvelopeCodec = PLAIN) -> str:
    """Compute 128 bits of key, value and headers that are not the service's own, in hexadecimal.

    A sealed digest stands after the id of its encryption key and a colon.

    >>> digest_content(b"k", b"v", [("retry-id", b"7"), ("trace", b"1")]) == digest_content(b"k", b"v", [("trace", b"1")])
    True
    """
    return codec.digests(_content(key, value, headers))[0]


def list_digests(key: bytes | None, value: bytes | None, headers: Headers, codec: EnvelopeCodec) -> list[str]:
    """List every digest that the audit may have of a letter: by each known key, the newest first, and without one."""
    return codec.digests(_content(key, value, headers))


def _content(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    return msgspec.msgpack.encode((key, value, [header for header in headers if header[0] not in names.OURS]))


def _digests(kind: str, result: Result, codec: EnvelopeCodec) -> dict[str, object]:
    if kind not in (action_records.EDIT, action_records.PATCH) or not isinstance(result, ActedLetter):
        return {}
    before = {} if result.before is None else {"before": _digest_entry(result.before, codec)}
    return {**before, "after": _digest_entry(result.entry, codec)}


def _digest_entry(entry: Entry, codec: EnvelopeCodec) -> str:
    return digest_content(entry.key, entry.value, entry.headers, codec)


def _result(member: Member, result: Result, parking: Mapping[str, str]) -> dict[str, object]:
    told: dict[str, object]
    if returned_offsets.is_place(member.key):
        told = {"parked": returned_offsets.describe_place(member.key, parking)}
    else:
        source = entry_keys.read_source(member.key)
        told = {"letter": source.letter, "due_ms": source.due_at_ms}
    if not isinstance(result, ActedLetter):
        return {**told, "result": result.reason if isinstance(result, Refusal) else DONE}
    told |= {"letter": entry_keys.read_source(result.key).letter, "result": DONE}
    if result.move is not None:
        told["target"] = result.move.entry.destination
    return {**told, "new_due_ms": entry_keys.due_at_ms(result.key), "new_target": result.entry.destination}


# What an action has decided of its letters, as records of the outcomes topic: so that whoever counts letters knows of it.

_DIGITS_MAX = 10
# By kind, where letters are not sent.
_GIVEN_UP = {
    action_records.PARK: outcomes.PARK, action_records.DISCARD: outcomes.DISCARD, action_records.ERASE: outcomes.ERASE,
}  # fmt: skip


def build_outcomes(state: ActionState, results: Sequence[tuple[Member, Result]], now_ms: int) -> list[dict[str, Any]]:
    """Build the rows for the topic of outcomes about letters for which something was done, under the id of the action."""
    letters: LettersByShared = defaultdict(list)
    for _, result in results:
        if isinstance(result, ActedLetter):
            was, sent = (result.entry, outcomes.RETURN) if result.move is None else (result.move.entry, outcomes.RETRY)
            _add_outcome(letters, state, result, was, sent)
    by = ActionOutcome(state.id.hex(), state.action.kind)
    return [{"key": by.id.encode(), "value": value} for value in outcomes.encode_outcomes(letters, now_ms, by)]


def _add_outcome(letters: LettersByShared, state: ActionState, acted: ActedLetter, was: Entry, sent: str) -> None:
    ours = {name: value for name, value in was.headers if name in names.OURS}
    if not (id_ := ours.get(names.ID)):
        # The service has not counted its attempts, and told of it as little as of a null that cancels.
        return
    decision, entry = _GIVEN_UP.get(state.action.kind, sent), acted.entry
    due_ms, topic, partition, offset = entry_keys.read_source(acted.key)
    # What is parked tells how many retries were made.
    attempt = (parse_integer(ours.get(names.ATTEMPT), _DIGITS_MAX) or 0) + (names.PARKED_REASON in ours)
    shared = SharedFields(
        entry.team, topic, partition, policy=(ours.get(names.POLICY) or b"").decode("utf-8", "replace"), attempt=attempt,
        exception=None, decision=decision, reason=BY_OPERATOR if decision == outcomes.PARK else None, target=entry.destination,
        cause=None, fingerprint=None, group=None,
    )  # fmt: skip
    failed_ms = next((at for at in (entry.failed_at_ms, entry.timestamp_ms) if at is not None), due_ms)
    first_ms = parse_moment(ours.get(names.FIRST_FAILED_MS))
    is_sent = decision in (outcomes.RETRY, outcomes.RETURN)
    letters[shared].append((id_, offset, failed_ms if first_ms is None else first_ms, failed_ms, due_ms if is_sent else None))
