"""What operators ask of letters: who is chosen, when each is due, how it is written, and what is refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry import format_versions
from retry.dead_letters import retry_headers
from retry.delay_queue import action_records, entry_keys, envelopes, ramp_records
from retry.delay_queue.action_records import Action, Member, Order, Tally
from retry.delay_queue.action_state import ActionState
from retry.delay_queue.envelopes import Entry
from retry.delay_queue.ramp_records import Ramp, Step, StepTally
from retry.delivery.acted_entry import EntryActions, hash_envelope
from retry.delivery.redecide import Redecider
from retry.errors import ActionRefused
from retry.intake.attempts import LineageTopic, format_retry_id
from retry.intake.build_entry import EntryBuilder
from retry.operations import waiting_entries
from retry.operations.act import choose, letter_sources, overview, request, start
from retry.operations.act.action_report import ramp_object
from retry.operations.act.choose import Chosen
from retry.operations.act.preview import diff_letters
from retry.operations.act.request import DueTimes, Edit
from retry.operations.letter_filter.parse import parse
from retry.operations.letter_filter.predicate import build_predicate
from retry.policies.policy_file import parse as policy_file
from retry.settings import Settings
from retry.testing.kafka import MemoryLog, MemoryTransactionalProducer
from retry.testing.memory_table import MemoryTable

NOW_MS, HOUR_MS = 1_795_300_000_000, 3_600_000
POLICIES = "teams: {shop: {topics: [{dead_letters: orders.DLT, retry_to: orders.retry, park_to: orders.parked}]}}"
REGISTRY = policy_file(POLICIES, "policies.yaml")
ASKED = Action("retry", "ann", 0, [], 0)


def letter(
    n: int, due_at_ms: int = NOW_MS + HOUR_MS, reason: bytes = b"", value: bytes | None = b'{"a": 1}'
) -> tuple[bytes, bytes]:
    """Key and envelope of one that waits."""
    lane = entry_keys.lane("shop", "orders.DLT", "orders.retry")
    key = entry_keys.build_key(due_at_ms, entry_keys.build_key_stem("orders.DLT", n % 2), n, lane)
    first = b"%d" % (NOW_MS - HOUR_MS)
    id_, source = format_retry_id(n, "shop"), b"orders.DLT/0/%d" % n
    ours = retry_headers.make_retry_headers(id_, b"1", source, b"%d" % due_at_ms, b"shop/orders.DLT", first)
    headers = [("tenant", b"acme"), *ours, *([(retry_headers.PARKED_REASON, reason)] if reason else [])]
    return key, envelopes.encode(Entry("orders.retry", b"k%d" % n, value, headers, NOW_MS, "shop", NOW_MS))


def choose_rows(
    monkeypatch: pytest.MonkeyPatch, tables: list[list[tuple[bytes, bytes]]], words: str, asked: Action = ASKED
) -> Chosen:
    def load_shard_tables(_: Settings) -> Iterator[tuple[int, MemoryTable]]:
        for number, rows in enumerate(tables):
            table = MemoryTable()
            table.apply_records(rows, len(rows), NOW_MS)
            yield number, table

    monkeypatch.setattr(waiting_entries, "load_shard_tables", load_shard_tables)
    limits = dict.fromkeys(("changelog", "parked", "orders.retry", "orders.parked"), 1 << 20)
    redecider = Redecider(REGISTRY, EntryBuilder("changelog", "parked", limits), LineageTopic("lineage", 1))
    actions = EntryActions(redecider, "discarded")
    state = request.renew_action(asked).build_initial_state()
    rows = letter_sources.iterate_changelog(Settings())
    return choose.choose(rows, len(tables), REGISTRY, build_predicate(parse(words), NOW_MS), actions, state, NOW_MS)


def test_those_that_are_meant_are_chosen_by_shard_and_others_are_refused_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = entry_keys.build_named_lane("tasks", "schedules", "out")
    named = entry_keys.build_named_key(NOW_MS, bytes(16), 1, entry_keys.build_key_stem("schedules", 0), 1, lane)
    task = envelopes.encode(envelopes.Named("out", b"t", b"v", [], NOW_MS, "tasks"))
    rows = [letter(n) for n in range(30)]
    found = choose_rows(monkeypatch, [[*rows[:10], (named, task)], [], [*rows[10:], letter(99, reason=b"rule")]], "-key:k3")
    assert found.keys == [sorted(k for k, _ in [*rows[:3], *rows[4:10]]), [], sorted(k for k, _ in rows[10:])]
    assert found.count == 29
    assert dict(found.refused) == {"named": 1, "parks": 1}
    assert {name: dict(groups) for name, groups in found.groups.items()} == {
        "team": {"shop": 29}, "topic": {"orders.DLT": 29}, "target": {"orders.retry": 29}, "exception": {"": 29},
        "reason": {"": 29}, "age": {"1h to 1d": 29},
    }  # fmt: skip
    assert len(found.examples) == choose.EXAMPLES_MAX


def test_a_redirect_that_no_policy_allows_has_no_members(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = msgspec.structs.replace(ASKED, kind="redirect", target="elsewhere")
    found = choose_rows(monkeypatch, [[letter(1), letter(2)]], "team:shop", asked)
    assert (found.count, dict(found.refused)) == (0, {"not_allowed": 2})
    allowed = msgspec.structs.replace(asked, target="orders.retry")
    assert choose_rows(monkeypatch, [[letter(1), letter(2)]], "team:shop", allowed).count == 2


def test_more_letters_than_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "MEMBERS_MAX", 2)
    with pytest.raises(ActionRefused, match="more than 2 letters"):
        choose_rows(monkeypatch, [[letter(n) for n in range(3)]], "team:shop")


def test_when_letters_are_due() -> None:
    later, overdue = letter(1)[0], letter(2, NOW_MS - 5)[0]
    assert [DueTimes().compute_due_time(key, NOW_MS) for key in (later, overdue)] == [NOW_MS, NOW_MS - 5]
    assert [DueTimes(at_ms=7).compute_due_time(key, NOW_MS) for key in (later, overdue)] == [7, 7]
    postponed = [DueTimes(postpone_ms=10).compute_due_time(key, NOW_MS) for key in (later, overdue)]
    assert postponed == [NOW_MS + HOUR_MS + 10, NOW_MS + 10]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(1, 10**9))
def test_a_spread_is_even(sizes: list[int], spread_ms: int) -> None:
    keys = [[letter(1_000 * shard + n)[0] for n in range(size)] for shard, size in enumerate(sizes)]
    found = request.renew_action(ASKED, DueTimes(spread_ms=spread_ms)).build_members(keys, NOW_MS)
    members = [list(some) for some in found]
    assert [[member.key for member in some] for some in members] == keys
    due = sorted(member.due_at_ms for some in members for member in some)
    assert all(NOW_MS <= at < NOW_MS + spread_ms for at in due)
    step_ms = spread_ms // max(1, len(due))
    assert {later - earlier for earlier, later in pairwise(due)} <= {step_ms, step_ms + 1}


@pytest.mark.parametrize("due", [DueTimes(), DueTimes(at_ms=NOW_MS + 5), DueTimes(postpone_ms=5), DueTimes(spread_ms=3)])
def test_letters_that_rest_and_failed_at_the_same_coordinates_get_different_times(due: DueTimes) -> None:
    # Their topic was deleted and made anew, twice.
    sources = [1, 2, 1, 3, 2, 1, 4]
    found = list(request.renew_action(ASKED, due).iterate_resting([b"%d" % n for n in range(7)], sources, NOW_MS))
    assert [member.key for member in found] == [b"%d" % n for n in range(7)]
    assert len({(source, member.due_at_ms) for source, member in zip(sources, found, strict=True)}) == 7
    if not due.spread_ms:
        assert [member.due_at_ms - found[0].due_at_ms for member in found] == [0, 0, 1, 0, 1, 2, 0]


def test_a_spread_is_random() -> None:
    asked = request.renew_action(ASKED, DueTimes(spread_ms=HOUR_MS))
    (members,) = asked.build_members([[letter(n)[0] for n in range(100)]], NOW_MS)
    due = [member.due_at_ms for member in members]
    assert due != sorted(due)


def test_an_edit_that_retries_is_due_as_a_retry_is() -> None:
    (later, envelope), (overdue, other) = letter(1), letter(2, NOW_MS - 5)
    asked = request.renew_action(ASKED, edit=Edit(b'{"a": 2}', retries=True))
    assert asked.build_member(later, envelope, NOW_MS).due_at_ms == NOW_MS
    assert asked.build_member(overdue, other, NOW_MS).due_at_ms == NOW_MS - 5


def test_an_edit_names_what_it_was_made_from() -> None:
    key, envelope = letter(1)
    asked = request.renew_action(ASKED, edit=Edit(b'{"a": 2}', {"tenant": None, "new": "1"}))
    member = asked.build_member(key, envelope, NOW_MS)
    edited = envelopes.decode(member.envelope)
    assert member.digest == hash_envelope(envelope)
    assert (edited.value, edited.headers[0]) == (b'{"a": 2}', ("new", b"1"))
    assert "tenant" not in dict(edited.headers)
    shown = diff_letters(envelopes.decode(envelope), edited)
    assert [line for line in shown if line[0] in "+-"][2:] == ["-tenant: acme", "+new: 1", '-  "a": 1', '+  "a": 2']


@pytest.mark.parametrize(
    ("former", "edit", "why"),
    [
        (b'{"a": 1}', Edit(b"no"), "is JSON, and the new one is not"),
        (b"text", Edit(b"text"), "stay as it is"),
        (b"text", Edit(headers={"retry-attempt": "9"}), "service's own"),
        (b"\0\0\0\0\x07avro", Edit(b"avro"), "framed for schema 7"),
    ],
)
def test_an_edit_that_would_break_a_letter_is_refused(former: bytes, edit: Edit, why: str) -> None:
    key, envelope = letter(1, value=former)
    with pytest.raises(ActionRefused, match=why):
        request.renew_action(ASKED, edit=edit).build_member(key, envelope, NOW_MS)


def test_what_is_not_json_may_become_something_else() -> None:
    key, envelope = letter(1, value=b"text")
    edited = request.renew_action(ASKED, edit=Edit(b"other")).build_member(key, envelope, NOW_MS)
    assert envelopes.decode(edited.envelope).value == b"other"


class Shards:
    """The changelog's partitions in memory; the clock of its brokers goes by an hour where it is told to."""

    topic, record_bytes_max = "changelog", 1 << 20

    def __init__(self, count: int, elapses_ms: int = 0) -> None:
        self.count, self.log, self._elapses_ms, self.at_ms = count, MemoryLog(lambda: NOW_MS), elapses_ms, NOW_MS
        self.log.create("changelog", count, 1 << 21)
        self.transactions: list[int] = []

    def now_ms(self) -> int:
        self.at_ms += self._elapses_ms
        return self.at_ms

    @contextmanager
    def writing(self) -> Iterator[MemoryTransactionalProducer]:
        writer = MemoryTransactionalProducer(self.log, "control")
        writer.open()
        commit = writer.commit

        def note_writing() -> None:
            commit()
            self.transactions.append(len(self.log.read("changelog")))

        writer.commit = note_writing  # type: ignore[method-assign]
        yield writer

    def ask_by(self, writer: Any, key: bytes, value: bytes | None) -> None:
        writer.begin()
        for partition in range(self.count):
            writer.write(self.topic, partition, [{"key": key, "value": value}])
        writer.commit()


def test_slices_are_written_in_short_transactions_and_the_head_is_last() -> None:
    shards, asked = Shards(3), request.renew_action(ASKED)
    sizes = [10_400, 0, 501]
    members = [[Member(letter(n)[0], NOW_MS) for n in range(size)] for size in sizes]
    action = start.start(shards, asked, [iter(some) for some in members], NOW_MS)  # type: ignore[arg-type]
    assert (action.slices, action.members, action.asked_at_ms) == ([21, 0, 2], sum(sizes), NOW_MS)
    assert shards.transactions == [20, 23, 26]
    records = shards.log.read("changelog")
    heads = [record for record in records if record.key() == action_records.build_head_key(asked.id)]
    assert sorted(record.partition() for record in heads) == [0, 1, 2]
    for shard, of_shard in enumerate(members):
        prefix = action_records.build_slices_prefix(asked.id)
        slices = [r for r in records if r.partition() == shard and (r.key() or b"").startswith(prefix)]
        read = [action_records.decode_slice(r.value() or b"") for r in sorted(slices, key=lambda r: r.key() or b"")]
        assert [member for part in read for member in part.members] == of_shard
        assert all(len(part.members) <= action_records.MEMBERS_MAX for part in read)


def test_of_a_ramp_each_slice_has_members_of_one_step_and_the_first_steps_are_drawn() -> None:
    sizes, ramp = [3_000, 0, 7_000], Ramp(0.9, [], 1, 2)
    members = [[Member(letter(n)[0], NOW_MS + shard) for n in range(size)] for shard, size in enumerate(sizes)]
    drawn = []
    for _ in range(2):
        shards, asked = Shards(3), request.renew_action(msgspec.structs.replace(ASKED, ramp=ramp))
        action = start.start(shards, asked, [iter(some) for some in members], NOW_MS, members_in_all=10_000)  # type: ignore[arg-type]
        assert action.ramp == Ramp(0.9, [1, 2, 5, 20, 50, 200, 1_000, 5_000, 3_722], 1, 2)
        found: dict[int, list[tuple[int, bytes]]] = {}
        for record in shards.log.read("changelog"):
            key = record.key() or b""
            if key.startswith(action_records.build_slices_prefix(asked.id)):
                part = action_records.decode_slice(record.value() or b"").members
                assert 0 < len(part) <= action_records.MEMBERS_MAX
                found.setdefault(ramp_records.step_of(key), []).extend((record.partition(), member.key) for member in part)
        assert [len(found[step]) for step in sorted(found)] == action.ramp.steps
        assert {each for some in found.values() for each in some} == {
            (shard, member.key) for shard, some in enumerate(members) for member in some
        }  # fmt: skip
        # The last steps go by the order of members, shard by shard.
        assert max(shard for shard, _ in found[8]) == min(shard for shard, _ in found[8]) == 2
        drawn.append(sorted(found[6]))
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(("elapses_ms", "records"), [(start.PREVIEW_MS_MAX + 1, 0), (start.PREVIEW_MS_MAX // 2 + 1, 1)])
def test_an_old_preview_is_not_started_and_has_no_head(elapses_ms: int, records: int) -> None:
    shards = Shards(1, elapses_ms)
    with pytest.raises(ActionRefused, match="older than 50 minutes"):
        start.start(shards, request.renew_action(ASKED), [[Member(letter(1)[0], NOW_MS)]], NOW_MS)  # type: ignore[arg-type]
    assert len(shards.log.read("changelog")) == records


def test_a_changelog_that_has_grown_meanwhile_is_not_written_to() -> None:
    with pytest.raises(ActionRefused, match="has 2 partitions, and had 1"):
        start.start(Shards(2), request.renew_action(ASKED), [[]], NOW_MS)  # type: ignore[arg-type]


class ShardRecords:
    """Controls of two shards."""

    def __init__(self, *controls: dict[bytes, bytes]) -> None:
        self.controls = controls

    def list_records(self, *prefixes: bytes) -> list[dict[bytes, bytes]]:
        return [{key: value for key, value in each.items() if key.startswith(prefixes)} for each in self.controls]


def test_an_action_is_told_of_all_shards_together() -> None:
    action_id, asked = bytes(8), msgspec.structs.replace(ASKED, slices=[1, 2], members=1_200, asked_at_ms=NOW_MS)
    head = {action_records.build_head_key(action_id): action_records.encode(asked)}
    tallies = [Tally(1, 400, 1, {"parks": 2}), Tally(1, 499, 1, {"parks": 1})]
    both = [{**head, action_records.tally_key(action_id): action_records.encode(tally)} for tally in tallies]
    (about,) = overview.list_overviews(ShardRecords(*both))  # type: ignore[arg-type]
    assert (about.tally, about.left, about.status) == (Tally(2, 899, 2, {"parks": 3}), [1], "running")
    held = {action_records.build_held_key(action_id): action_records.encode(Order("ann", NOW_MS))}
    (about,) = overview.list_overviews(ShardRecords(*({**each, **held} for each in both)))  # type: ignore[arg-type]
    assert about.status == "held"
    assert overview.find([about], "00") is about
    with pytest.raises(ActionRefused, match="there is no action 1f"):
        overview.find([about], "1f")
    with pytest.raises(ActionRefused, match="2 actions have ids that begin with 0"):
        overview.find([about, about], "0")


class Asking(ShardRecords):
    """A stand-in for the cluster, for whoever gives orders."""

    def now_ms(self) -> int:
        return NOW_MS + 9

    def put_control_record(self, key: bytes, value: bytes, *_: object) -> None:
        for controls in self.controls:
            controls[key] = value


def test_to_resume_what_waits_for_its_policy_file_accepts_that_of_the_worker_from_then_on() -> None:
    action_id, asked = bytes(8), msgspec.structs.replace(ASKED, slices=[1], policies="named")
    held = Order("worker", NOW_MS, "it waits for the policy file", policies="another")
    shards = Asking({action_records.build_head_key(action_id): action_records.encode(asked)})
    shards.put_control_record(action_records.build_held_key(action_id), action_records.encode(held))
    for hold in (held, Order("ann", NOW_MS + 1)):
        shards.put_control_record(action_records.build_held_key(action_id), action_records.encode(hold))
        (about,) = overview.list_overviews(shards)
        overview.resume(shards, about, "ann", "seen")  # type: ignore[arg-type]
        resumed = msgspec.json.decode(shards.controls[0][action_records.build_resumed_key(action_id)], type=Order)
        assert resumed == Order("ann", NOW_MS + 9, "seen", hold.at_ms, "another")


def test_members_of_a_group_tell_what_they_read() -> None:
    name = format_versions.announce_instance("worker-a.b_c")
    assert all(format_versions.reads_format(name, of) for of in (format_versions.KEY, format_versions.ACTION))
    assert not format_versions.reads_format("worker-a.b_c", format_versions.ACTION)
    newer = format_versions.ACTION._replace(writes=2)
    assert not format_versions.reads_format(name, newer)
    assert len(name) - len("worker-a.b_c") < 149, "an instance has up to 100 characters, and brokers take 249"


def ramped_overview(step: Step, *tallies: Tally) -> overview.ActionOverview:
    head = Action("retry", "ann", NOW_MS, [1, 1], 8, ramp=Ramp(0.9, [1, 2, 5], 1, 2))
    states = {n: ActionState(b"12345678", head, None, None, tally, None, step) for n, tally in enumerate(tallies)}
    return overview._overview(states)


def test_steps_of_a_ramp_are_told_over_all_shards() -> None:
    first = Tally(1, 2, steps=[StepTally(1, 1, 1), StepTally(1, 1, 1)])
    about = ramped_overview(
        Step(1, held_ms=9, silent=["orders.retry"]), first, Tally(1, 1, steps=[StepTally(), StepTally(1, 1, 0)])
    )
    about = about._replace(steps=[each._replace(failed=failed) for each, failed in zip(about.steps, (0, 2, 0), strict=True)])
    told = ramp_object(about)
    assert told is not None
    assert (told["keep"], told["counts_from"], told["passed_in_silence"]) == (0.9, 1, ["orders.retry"])
    columns = ("step", "status", "letters", "worked", "put", "sent", "failed", "passed", "bound")
    assert [tuple(step[name] for name in columns) for step in told["steps"]] == [
        (1, "passed", 1, 1, 1, 1, 0, 1, 1.0), (2, "held", 2, 2, 2, 1, 2, 0, 0.8646), (3, "waits", 5, 0, 0, 0, 0, 0, None),
    ]  # fmt: skip


def test_a_ramp_is_done_when_its_last_step_is_judged() -> None:
    done = Tally(1, 8, steps=[StepTally(1, 1, 1), StepTally(2, 2, 2), StepTally(5, 5, 5)])
    assert (ramped_overview(Step(2), done, done).status, ramped_overview(Step(2), done, done).left) == ("running", [0])
    assert (ramped_overview(Step(3), done, done).status, ramped_overview(Step(3), done, done).left) == ("done", [])
    assert ramp_object(ramped_overview(Step(3), done)._replace(action=ASKED)) is None
