"""Starting an action: its slices in short transactions, then its head in one for all shards.

Without the head nothing has begun, and the owner of each shard removes slices that have none after an hour. So the head is not
written once the preview is 50 minutes old, by the brokers' time.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from typing import NamedTuple

import msgspec

from retry import format_versions
from retry.clock import Deadline, monotonic_s
from retry.dead_letters import retry_headers as names
from retry.delay_queue import action_records, ramp_records, returned_offsets
from retry.delay_queue.action_records import MEMBERS_MAX, Action, Member
from retry.delivery.act_records import DONE
from retry.delivery.acted_entry import DISCARDED
from retry.errors import ActionRefused, TopicsInvalid, TransactionFailed, TransactionSlow
from retry.kafka import authorization, consumer_groups, topics
from retry.kafka.authorization import Right
from retry.kafka.interface import AdminClient
from retry.kafka.transaction_pace import TransactionPace
from retry.kafka.transactional_producer import KafkaTransactionalProducer, demand_arrival
from retry.operations.act.audit import Audit
from retry.operations.act.choose import Selects
from retry.operations.act.letter_sources import AllLetters
from retry.operations.act.overview import ActionOverview
from retry.operations.act.preview import Preview, preview
from retry.operations.act.request import Request, renew_action
from retry.operations.control_requests import ASK_S, ShardNumbers
from retry.operations.found_letter import FoundLetter
from retry.policies.registry import Registry

# Whether actions can be asked for at all: their topics are there, and every worker reads what asks for them.

_OLDER = (
    "{number} of {count} workers are of an earlier version, which stops where an action begins: {ids}. Upgrade all workers first"
)


def demand_readiness(admin: AdminClient, app_id: str) -> None:
    """Check that an action can start: its topics exist, and every worker can read the records that ask for an action.

    Raises:
      TopicsInvalid: a topic is missing, with the command that creates it.
      ActionRefused: a worker is of an earlier version.
      RightMissing: this user may not know which workers there are.
    """
    own = topics.build_topic_names(app_id)
    wanted = [own.audit, own.discarded]
    present = topics.describe(admin, wanted)
    if missing := [topic for topic in wanted if topic not in present]:
        raise TopicsInvalid([f"{topic} is missing" for topic in missing], "retry topics create")
    group = own.table_group
    ids = consumer_groups.list_members(admin, group)
    if ids is None:
        raise authorization.build_right_missing(Right(authorization.GROUP, group, authorization.DESCRIBE))
    if older := sorted(each for each in ids if not format_versions.reads_format(each, format_versions.ACTION)):
        raise ActionRefused(_OLDER.format(number=len(older), count=len(ids), ids=", ".join(dict.fromkeys(older))))


PREVIEW_MS_MAX = 3_000_000
# Ten thousand letters: an open transaction holds back all who read the changelog.
_SLICES_AT_ONCE = 20


class _Slice(NamedTuple):
    """Some members of one shard, of one kind and step; `members` counts them."""

    shard: int
    key: bytes
    value: bytes
    members: int

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value)


def start(
    shards: ShardNumbers, request: Request, members: Sequence[Iterable[Member]], previewed_at_ms: int,
    resting: Iterable[Member] = (), parking: dict[str, str] | None = None, members_in_all: int = 0,
) -> Action:
    """Ask the workers to do the action, and return it as they have it.

    Args:
      members: by shard.
      resting: members that are parked or discarded, and `parking` the names of their topics, by the hash of their ids.
      members_in_all: of a ramp, how many there are.
      previewed_at_ms: when they were chosen, by the brokers' time.

    Raises:
      ActionRefused: the preview is too old, the changelog has another number of partitions by now, or an edit is too large.
      TransactionFailed: the action is not known to be there; `retry actions` tells.
      RightMissing: this user may not write there.
    """
    if len(members) != shards.count:
        raise ActionRefused(f"the changelog has {shards.count} partitions, and had {len(members)}; ask again")
    _demand_recent(shards.now_ms(), previewed_at_ms)
    ramp = request.action.ramp
    steps: Iterator[int] = repeat(0)
    if ramp is not None:
        ramp, steps = msgspec.structs.replace(ramp, steps=ramp_records.compute_steps(members_in_all)), draw_steps(members_in_all)
    with shards.writing() as writer:
        slices = _SliceWriter(shards, writer)
        slices.write_all(_build_slices(request.id, members, resting, previewed_at_ms, steps))
        now_ms = shards.now_ms()
        _demand_recent(now_ms, previewed_at_ms)
        action = msgspec.structs.replace(
            request.action, asked_at_ms=now_ms, slices=slices.counts, members=slices.members, parking=parking or {}, ramp=ramp
        )
        shards.ask_by(writer, action_records.build_head_key(request.id), action_records.encode(action))
    return action


def start_preview(shards: ShardNumbers, found: Preview) -> Action:
    """Ask the workers to do what was previewed; returns and raises as `start`."""
    members, resting, chosen = found.list_members(), found.iterate_resting(), found.chosen
    return start(shards, found.request, members, found.at_ms, resting, chosen.parking, chosen.count)


class _SliceWriter:
    """Writes slices in short transactions. After one that took longer than a transaction lives, the next have fewer slices.

    Attributes:
      counts: how many slices were committed, by shard.
      members: how many members these have.
    """

    def __init__(self, shards: ShardNumbers, writer: KafkaTransactionalProducer) -> None:
        self._shards, self._writer = shards, writer
        self._pace = TransactionPace("slices of actions", _SLICES_AT_ONCE * shards.record_bytes_max)
        self._patience = Deadline(ASK_S)
        self.counts, self.members = [0] * shards.count, 0

    def write_all(self, slices: Iterator[_Slice]) -> None:
        waiting: deque[_Slice] = deque()
        while True:
            waiting.extend(islice(slices, _SLICES_AT_ONCE - len(waiting)))
            if not waiting:
                return
            some = self._choose_first(waiting)
            if self._write_some(some):
                for part in some:
                    self.counts[part.shard] += 1
                    self.members += part.members
                    waiting.popleft()

    def _choose_first(self, waiting: Iterable[_Slice]) -> list[_Slice]:
        """Choose as many as the next transaction may have, and one at least."""
        some, size = list[_Slice](), 0
        for part in waiting:
            size += part.size
            if some and size > self._pace.bytes_max:
                break
            some.append(part)
        return some

    def _write_some(self, some: list[_Slice]) -> bool:
        """Write slices in one transaction, and return whether they are committed: if not, fewer of them are to be written."""
        for part in some:
            if part.size > self._shards.record_bytes_max:
                raise ActionRefused(f"{len(part.value):,} bytes are more than the changelog takes in one record")
        begun_s, size = monotonic_s(), sum(part.size for part in some)
        try:
            self._writer.begin()
            for part in some:
                self._writer.write(self._shards.topic, part.shard, [{"key": part.key, "value": part.value}])
            demand_arrival(self._writer)
            self._writer.commit()
        except TransactionFailed as failed:
            self._pace.note_failure(begun_s, size)
            if not isinstance(failed, TransactionSlow) or self._patience.has_passed():
                raise
            # Another client undoes it.
            self._writer.renew_client()
            return False
        self._pace.note_commit(begun_s, size)
        self._patience = Deadline(ASK_S)
        return True


def _build_slices(
    action: bytes, members: Sequence[Iterable[Member]], resting: Iterable[Member], written_at_ms: int, steps: Iterator[int]
) -> Iterator[_Slice]:
    numbers = [count() for _ in members]
    for shard, some_members in [*enumerate(members), (returned_offsets.SHARD, resting)]:
        for step, some in _by_step(some_members, steps):
            key = action_records.build_slice_key(action, step, next(numbers[shard]))
            yield _Slice(shard, key, action_records.encode_slice(some, written_at_ms), len(some))


def _by_step(members: Iterable[Member], steps: Iterator[int]) -> Iterator[tuple[int, list[Member]]]:
    """Group members by step, at most as many together as a slice has."""
    left: defaultdict[int, list[Member]] = defaultdict(list)
    for member in members:
        step = next(steps)
        left[step].append(member)
        if len(left[step]) == MEMBERS_MAX:
            yield step, left.pop(step)
    yield from left.items()


def draw_steps(count: int) -> Iterator[int]:
    """Draw the step of each member of a ramp: the first steps at random, the others by the order of members."""
    sizes = ramp_records.compute_steps(count)
    few = sum(sizes[: len(ramp_records.DRAWN_STEPS)])
    at_random = (step for step, size in enumerate(sizes[: len(ramp_records.DRAWN_STEPS)]) for _ in range(size))
    early = dict(zip(random.sample(range(count), few), at_random, strict=True))
    in_order = (step for step, size in enumerate(sizes) if step >= len(ramp_records.DRAWN_STEPS) for _ in range(size))
    return (early[n] if n in early else next(in_order) for n in range(count))


def _demand_recent(now_ms: int, previewed_at_ms: int) -> None:
    if now_ms - previewed_at_ms > PREVIEW_MS_MAX:
        raise ActionRefused("the preview is older than 50 minutes, and what waits may have changed; ask again")


# Undoing a discard while that is possible: letters that still wait to be discarded go back to where they were.

_INSTEAD = {
    action_records.RETRY: "what is sent stays sent; what still waits can be given another time with `retry act retry --at`",
    action_records.REDIRECT: "what is sent stays sent; what still waits can be redirected again",
    action_records.PARK: "its letters lie on their parking topics; return them with `retry act retry state:parked`",
    action_records.EDIT: "the letter as it was lies in the topic of discarded letters, marked superseded; edit it again",
    action_records.PATCH: "the letters as they were lie in the topic of discarded letters, marked superseded; patch them again",
    action_records.ERASE: "nothing is left of its letters",
    action_records.UNDO: "discard the letters again",
}


class UndoPlan(NamedTuple):
    """An undo that can be asked for.

    Attributes:
      letters: `topic/partition/offset` of the letters that the action was done for.
      selects: whether a letter is one of them and still waits to be discarded.
    """

    request: Request
    letters: frozenset[str]
    selects: Selects

    def preview(self, shards: ShardNumbers) -> tuple[Preview, str]:
        """Choose the letters that the undo brings back, and describe those for which it comes too late; see `preview.preview`."""
        found = preview(shards.settings, Registry(), self.request, self.selects, shards.now_ms(), AllLetters(shards))
        return found, self.too_late(found.chosen.count)

    def too_late(self, undone: int) -> str:
        """Describe the letters that are not among so many `undone` ones, and how to return them; empty where there are none."""
        if not (late := len(self.letters) - undone):
            return ""
        told = f"{late:,} of {len(self.letters):,} letters: already discarded, or acted on since"
        # What is discarded says by which action, and is kept for longer than the window lasts.
        filter_ = f"state:{DISCARDED} header.{names.ACTION}:{self.request.action.undoes}"
        return f"{told}. To return those that are discarded: retry act retry {filter_}"


def build_undo(audit: Audit, about: ActionOverview, by: str, reason: str) -> UndoPlan:
    """Build the undo of a discard.

    Raises:
      ActionRefused: the action is no discard, or is not over.
      TopicsInvalid: the audit cannot be read.
    """
    kind, action_id = about.action.kind, about.id.hex()
    if kind != action_records.DISCARD:
        raise ActionRefused(f"{'an' if kind[0] in 'aeu' else 'a'} {kind} cannot be undone: {_INSTEAD.get(kind, '')}")
    if about.left:
        raise ActionRefused(f"it is not over yet; first: retry actions cancel {action_id}")
    told = audit.read_records(about.action.asked_at_ms - action_records.CLOCKS_MS, action_id)
    done = frozenset(each.letter for record in told for each in record.letters if each.result == DONE)
    discarded = topics.build_topic_names(audit.settings.app_id).discarded

    def is_selected(letter: FoundLetter) -> bool:
        marked = letter.ours.get(names.ACTION) == action_id.encode()
        return marked and letter.target == discarded and str(letter.source) in done

    action = Action(
        action_records.UNDO, by=by, asked_at_ms=0, slices=[], members=0, undoes=action_id, reason=reason,
        filter=f"action {action_id}",
    )  # fmt: skip
    return UndoPlan(renew_action(action), done, is_selected)
