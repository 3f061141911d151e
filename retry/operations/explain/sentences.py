"""What is known of one letter, a sentence a line."""

from __future__ import annotations

from collections.abc import Iterator

from backoff import duration_text
from retry.clock import iso
from retry.dead_letters import retry_headers as names
from retry.dead_letters.failure import UNKNOWN, Failure
from retry.delay_queue.entry_keys import NAMED, due_at_ms, is_held, read_source, read_version
from retry.delay_queue.envelopes import HEADERS_MAX, Named, Unopened
from retry.intake.build_entry import draw
from retry.operations.explain import state as due_steps
from retry.operations.explain.search import DecisionRecord
from retry.operations.explain.state import ExplainedLetter, LetterState
from retry.operations.waiting_entries import WaitingEntry
from retry.policies.explain import compute_delay_bounds_ms
from retry.policies.explain import explain as policy_lines
from retry.policies.route import MatchInput
from retry.telemetry.outcomes import ERASE

_MESSAGE_CHARS_MAX = 200
_MINUTE_MS = 60_000


def explain_letter(seen: ExplainedLetter) -> Iterator[str]:
    """Describe who wrote the letter, what failed, and how often so far."""
    evidence, decided = seen.evidence, seen.decision
    if evidence.missing:
        yield evidence.missing
    if evidence.letter is not None:
        failure = evidence.letter.failure
        if not evidence.letter.copyable():
            yield f"{evidence.location} has headers that cannot be read: more than {HEADERS_MAX:,}, or a name that is not UTF-8."
        elif failure.family == UNKNOWN:
            yield f"{evidence.location} has no headers that tell who wrote it."
        else:
            yield f"{evidence.location} was written by {failure.family}."
        yield from _failure(failure)
    if decided is not None:
        first = f", first failed at {iso(decided.first_failed_ms)}" if decided.first_failed_ms is not None else ""
        yield f"Its lineage is {decided.id}, with {_times(decided.attempt - 1)} so far{first}."


def _failure(failure: Failure) -> Iterator[str]:
    if failure.origin_topic:
        told = (failure.origin_topic, failure.origin_partition, failure.origin_offset)
        where = "/".join(str(part) for part in told if part is not None)
        group = f", which group {failure.consumer_group} could not process" if failure.consumer_group else ""
        yield f"It is about {where}{group}."
    if failure.exception or failure.cause or failure.message:
        cause = f" because of {failure.cause}" if failure.cause and failure.cause != failure.exception else ""
        stage = f", at stage {failure.stage}" if failure.stage else ""
        message = f": {failure.message[:_MESSAGE_CHARS_MAX]}" if failure.message else ""
        yield f"What failed is {failure.exception or 'an unnamed exception'}{cause}{stage}{message}"
    if failure.attempts > 1:
        yield f"It tells of {failure.attempts:,} failed deliveries."


def _times(retries: int) -> str:
    return "1 retry" if retries == 1 else f"{retries:,} retries" if retries > 0 else "no retry"


def describe_policy(seen: ExplainedLetter) -> Iterator[str]:
    """Describe what decided, which rule matched, and what the policy file says of such a letter."""
    decided, dead_letter, registry = seen.decision, seen.evidence.letter, seen.registry
    if decided is not None and not seen.foreseen:
        yield f"What decided is policy {decided.policy} of team {decided.team}."
    if registry is None:
        yield "No policy file is given (--file), so nothing is said of its rules."
    elif dead_letter is not None and decided is not None:
        letter = dead_letter if seen.present is None else seen.present.letter
        first_ms, taken_ms = decided.first_failed_ms, decided.taken_ms or seen.now_ms
        age_ms = 0 if first_ms is None else max(0, taken_ms - first_ms)
        match_input = MatchInput(letter.failure, max(1, decided.attempt), age_ms, letter.original_headers, letter.value is None)
        yield "The policy file says of such a letter:"
        yield from (f"  {line}" for line in policy_lines(registry, letter.topic, match_input))
    if seen.evidence.waiting is not None and decided is not None:
        yield from _otherwise(seen, decided)


def _otherwise(seen: ExplainedLetter, decided: DecisionRecord) -> Iterator[str]:
    """Describe what the policy file would decide now, if that differs from what was decided."""
    present = seen.present
    if present is None:
        return
    differs = present.reason != decided.reason or present.plan.name != decided.policy
    if present.reason is None and decided.reason is None:
        # Of a letter that is gone its own wish is not known any more, nor when it was taken in where the outcome is not found.
        moved = present.due_at_ms != decided.due_ms and seen.evidence.missing is None and decided.taken_ms is not None
        differs = differs or present.target != decided.target or moved
    if differs:
        now = f"park it: {present.reason}" if present.reason else f"retry it in {present.target}, due {iso(present.due_at_ms)}"
        yield f"The policy file has changed since: by {present.plan.name} it would now {now}."
        yield "`retry reschedule` has waiting letters decided anew."


def describe_due_time(seen: ExplainedLetter) -> Iterator[str]:
    """Yield sentences that say how the due time of a letter came about; none where no due time is known."""
    evidence, decided, present = seen.evidence, seen.decision, seen.present
    if decided is None or decided.due_ms is None:
        return
    failed_ms = present.failed_at_ms if decided.failed_ms is None and present else decided.failed_ms
    if failed_ms is not None:
        yield f"It failed at {iso(failed_ms)}{f', and was taken in at {iso(decided.taken_ms)}' if decided.taken_ms else ''}."
    if decided.action is not None:
        yield f"An operator has set its due time, with the action {decided.action}."
    elif present is not None and present.reason is None and failed_ms is not None:
        found = list(due_steps.list_due_steps(
            present.plan.policy, attempt=present.attempt, failed_at_ms=failed_ms, now_ms=decided.taken_ms or seen.now_ms,
            draw=draw(present.letter.source), retry_at_ms=present.letter.retry_at_ms,
        ))  # fmt: skip
        if found[-1].at_ms == decided.due_ms:
            yield from (step.says for step in found)
        else:
            yield "How its due time came about cannot be told from the present policy file."
    yield f"So it would be due at {iso(decided.due_ms)}." if seen.foreseen else f"So its due time is {iso(decided.due_ms)}."
    if evidence.waiting and (at_ms := due_at_ms(evidence.waiting.key)) != decided.due_ms:
        if names.ACTION in dict(evidence.waiting.entry.headers):
            yield f"An operator has it due at {iso(at_ms)} since."
        else:
            yield f"It was put off to {iso(at_ms)} since: its topic refused it, or it was rescheduled."


def describe_current_state(seen: ExplainedLetter) -> Iterator[str]:
    """Describe where the letter is now."""
    evidence, decided = seen.evidence, seen.decision
    if evidence.waiting is not None:
        yield from _waits(seen, evidence.waiting)
    elif seen.state is LetterState.UNREAD:
        yield f"No worker reads it: no team of the policy file names {evidence.location.topic}."
    elif seen.state is LetterState.UNSEEN:
        at = "has read nothing of its partition yet" if evidence.position is None else f"goes on at offset {evidence.position}"
        yield f"It is not taken in yet: the intake group {at}{', and no worker runs' if evidence.workers == 0 else ''}."
    elif decided is None:
        yield "It was taken in and has left the service; its outcome is gone, or was not found within 10 s."
    elif seen.state is LetterState.LEFT:
        yield f"An operator returned it from {decided.target}, and no outcome that is found tells where to."
    else:
        done = {
            LetterState.PARKED: f"It was parked because of {decided.reason}",
            LetterState.DISCARDED: "It was erased" if decided.decision == ERASE else "It was discarded",
        }.get(seen.state, f"It was retried as retry {decided.attempt}")  # fmt: skip
        if evidence.delivery is None:
            yield f"{done}: it was sent to {decided.target}, where its record is gone or was not found within 10 s."
        else:
            at_ms = evidence.delivery.at_ms
            yield f"{done}{f' at {iso(at_ms)}' if at_ms is not None else ''}: it is {evidence.delivery.place}."
            yield from _acted_on(evidence.delivery.action)
    for former in evidence.former:
        yield f"As it was before the action {former.action} changed it, it is kept at {former.place}: superseded, never returned."


def _format_rounded(ms: int) -> str:
    """A duration; of one of a minute or more whole seconds are enough."""
    return duration_text(ms - ms % 1_000 if ms >= _MINUTE_MS else ms)


def _waits(seen: ExplainedLetter, waiting: WaitingEntry) -> Iterator[str]:
    where, target, evidence = read_source(waiting.key), waiting.entry.destination, seen.evidence
    late_ms = seen.now_ms - where.due_at_ms
    if waiting.head is not None:
        yield f"It waits at {where} to go to {target}, behind the earlier letter of its key at {read_source(waiting.head)}."
        yield from _tell_refused_head(seen, waiting.head)
    elif seen.state is LetterState.OVERDUE:
        yield f"It waits at {where} to go to {target}, and is overdue by {_format_rounded(late_ms)}."
    else:
        yield f"It waits at {where} to go to {target}, for another {_format_rounded(-late_ms)}, until {iso(where.due_at_ms)}."
    yield from _of_name(waiting)
    ours = dict(waiting.entry.headers)
    action = ours.get(names.ACTION)
    if action is not None:
        yield from _acted_on(action.decode("utf-8", "replace"))
        if names.ACTION_BEFORE in ours:
            yield "That discarded it: until it goes there, it can be undone."
    yield from _tell_refusal(seen, waiting)
    yield from _describe_seal(seen, waiting)
    if evidence.blocked:
        yield f"It may not go now: {evidence.blocked}."
    if evidence.workers == 0:
        yield "No worker runs."
    elif seen.state is LetterState.OVERDUE and evidence.forbidden:
        yield f"The user that asks may not send it there, nor may a worker that is the same user: {evidence.forbidden}."
    elif seen.state is LetterState.OVERDUE and not evidence.blocked and not is_held(waiting.key):
        yield "Nothing forbids it: a limit is used up, a breaker is open, or more is due than was sent so far."
        yield "/health/ready of the workers says which."


def _tell_refused_head(seen: ExplainedLetter, head: bytes) -> Iterator[str]:
    """Whether the topic of the letter that it waits behind refuses that one."""
    _, topic, partition, offset = read_source(head)
    if (refused := seen.evidence.refused.get(f"{topic}/{partition}/{offset}")) is not None:
        yield f"That is {refused.letter}, which {refused.target} refuses: {refused.why}. It is parked if it is refused once more."


def _tell_refusal(seen: ExplainedLetter, waiting: WaitingEntry) -> Iterator[str]:
    """Whether its topic refuses this letter, or others that are due."""
    told, target = seen.evidence.refused, waiting.entry.destination
    own = told.get(str(seen.evidence.location))
    others = [each for each in told.values() if each.target == target and each is not own]
    if own is not None:
        yield f"{own.target} takes others and refuses this one since {iso(own.since_ms)}: {own.why}."
        if not is_held(waiting.key):
            yield "It is tried once more, and parked if it is refused again."
    elif seen.state is LetterState.OVERDUE and others:
        yield f"{target} refuses {len(others):,} other letters, which were put aside: {others[0].letter}: {others[0].why}."


def _describe_seal(seen: ExplainedLetter, waiting: WaitingEntry) -> Iterator[str]:
    """Describe whether the entry is held, and whether workers, or whoever asks, lack its encryption key."""
    entry = waiting.entry
    if is_held(waiting.key) and str(seen.evidence.location) in seen.evidence.refused:
        yield f"It is held: nothing of it is sent until {entry.destination} takes it, which is tried every minute."
    elif is_held(waiting.key):
        yield "It is held: workers could not open it, and send nothing of it. It goes within a minute once they can."
    if isinstance(entry, Unopened):
        yield f"What it holds cannot be read here: {entry.why}."


def _acted_on(action: str | None) -> Iterator[str]:
    if action is not None:
        id_, _, step = action.partition("/")
        of_ramp = f"step {int(step) + 1} of " if step.isdecimal() else ""
        yield f"An operator acted on it, with {of_ramp}the action {id_}."


def _of_name(waiting: WaitingEntry) -> Iterator[str]:
    if waiting.key[0] != NAMED or not isinstance(waiting.entry, Named):
        return
    yield f"It has a name, of which it is version {read_version(waiting.key)}: what comes later under that name replaces it."
    plan = waiting.entry.plan
    if plan is not None:
        how = f"recurs by {plan.cron} in {plan.zone}" if plan.cron else "does not recur"
        how = f"recurs every {duration_text(plan.every_ms)}" if plan.every_ms else how
        yield f"It {how}; what waits is run {plan.run}."


def describe_next_steps(seen: ExplainedLetter) -> Iterator[str]:
    decided, present = seen.decision, seen.present
    if seen.state is LetterState.UNREAD:
        yield "Nothing happens until a team's section names its topic."
    elif decided is not None and decided.decision == "park":
        yield f"{'It would rest' if seen.foreseen else 'It rests'} in {decided.target}; nothing more happens by itself."
    elif seen.state is LetterState.DISCARDED:
        yield "Nothing more happens by itself, and it is kept there for 30 days."
    elif seen.evidence.waiting is not None and names.ACTION_BEFORE in dict(seen.evidence.waiting.entry.headers):
        yield "Unless that is undone, it is kept there for 30 days, and nothing more happens by itself."
    elif decided is not None and seen.state is not LetterState.LEFT:
        yield f"If retry {decided.attempt} fails, its dead letter is taken in as a new letter of lineage {decided.id}."
        if present is not None:
            yield from _next_retry(seen, decided)


def _next_retry(seen: ExplainedLetter, decided: DecisionRecord) -> Iterator[str]:
    if seen.present is None:
        return
    policy, attempt = seen.present.plan.policy, decided.attempt + 1
    if attempt > policy.max_attempts:
        yield f"That one is parked: max_attempts is {policy.max_attempts}."
        return
    low, high = (duration_text(delay_ms) for delay_ms in compute_delay_bounds_ms(policy, attempt))
    yield f"That one is retried {low if low == high else f'{low} to {high}'} after its failure, if the same rule matches."
    first_ms = decided.first_failed_ms
    end = "" if first_ms is None else f", at {iso(first_ms + policy.max_age_ms)}"
    yield f"After retry {policy.max_attempts}, or {duration_text(policy.max_age_ms)} after the first failure{end}, it is parked."
