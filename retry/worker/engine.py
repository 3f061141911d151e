"""The worker's parts, put together and without a framework: what its threads call, and what it says of itself."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from retry import clock
from retry.delay_queue import control_records
from retry.delivery.admission import RefusedEntry
from retry.delivery.sweep import SweepResult
from retry.intake.attempts.lineage_follower import LineageFollower
from retry.intake.batch import Gathering, LetterBatch, PreparedBatch, WrittenBatch
from retry.intake.consumer import LetterConsumer
from retry.kafka.broker_clock import TrustedClock
from retry.kafka.topic_ends import StartupBacklog
from retry.kafka.transaction_pace import TransactionPace
from retry.process.periodic import PeriodicTasks
from retry.process.policy_reload import OnPolicies, PolicyFile
from retry.repeated_lines import RepeatedLineFilter
from retry.telemetry import letter_lines
from retry.telemetry.health import Blocked, HealthProbe, PartitionId, Reason
from retry.telemetry.metrics import Metrics
from retry.telemetry.recovery_ratio import count_retries
from retry.telemetry.unreadable_records import UNREADABLE
from retry.worker import worker_status
from retry.worker.backlog import UnreadLetters
from retry.worker.shards import joint_sweep
from retry.worker.shards.assignment import FoldWork, Shards
from retry.worker.shards.restore import REASONS, Phase
from retry.worker.shards.shard import Shard
from retry.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from retry.telemetry.tracing import Traces

log = logging.getLogger(__name__)
# Where a topic takes no large records any more, every sweep may put some back.
log.addFilter(RepeatedLineFilter(lambda record: record.msg if str(record.msg).startswith("put back") else None))

Ends = Callable[[Iterable[PartitionId]], dict[PartitionId, int]]

# One sweep delivers so many batches at most, then it is looked whether it should go on.
_BATCHES_MAX = 10
# Whoever waits longer for the brokers' time could not commit either.
_CLOCK_S = 10.0
_ANSWER_S = 2.0
_AGAIN_S = 0.05
_LEAVE_S = 3.0
# While nothing is due so soon, nobody looks before it is over, or something new is folded; the longest of these that holds.
# The first only where every shard is ready: one that becomes ready may bring what is due already.
_QUIET_S = (1.0, 0.25, 0.125, 0.06)


class Engine:
    """Letters in, changelog records folded, due entries out; every method blocks and belongs to a thread.

    Attributes:
      much_is_due: whether the last sweep delivered a full batch, so that another one had better be gathered meanwhile.
      sent_few: whether it delivered less, and all that was due then, so that the next one had better wait for more.
    """

    def __init__(
        self, letters: LetterConsumer, shards: Shards, recent: LineageFollower, policies: PolicyFile, use: OnPolicies,
        metrics: Metrics, skew: TrustedClock, looks: Sequence[Callable[[], None]], ends: Ends, stalled_s: float,
        backlog: StartupBacklog | None = None, rounds: PeriodicTasks | None = None, traces: Traces | None = None,
        unread: UnreadLetters | None = None,
    ) -> None:  # fmt: skip
        self._letters, self._shards, self._recent, self.metrics = letters, shards, recent, metrics
        self._policies, self._use, self._looks, self._skew = policies, use, (skew.check_skew, *looks), skew
        self.read_letters, self.write_letters, self.close_letters = letters.read, letters.write, letters.close
        self.gathering = Gathering(letters.may_join)
        self.read_changelog = shards.read
        self.read_lineages, self.close_lineages = recent.read, recent.close
        self.ask_for_policies = policies.request_reload
        self._backlog, self.rounds, self._traces = backlog, rounds or PeriodicTasks([]), traces
        self._unread = unread
        self._cut_short = self.much_is_due = self.sent_few = False
        self._ends, self.watchdog = ends, Watchdog(self._list_probes, self._hear_ends, stalled_s)
        self._watch()

    def _hear_ends(self, places: Iterable[PartitionId]) -> dict[PartitionId, int]:
        asked_at_ms = clock.wall_ms()
        found = self._ends(places)
        self._shards.note_ends(found, asked_at_ms)
        return found

    def brokers_answer(self) -> bool:
        """Whether one tells where a partition of the changelog ends; asked again for two seconds, as leaders may be moving."""
        places = {(self._shards.topic, 0), *(shard.changelog for shard in self._shards.list_open_shards())}
        deadline = clock.Deadline(_ANSWER_S)
        while not self._ends(places):
            if deadline.has_passed():
                return False
            clock.pause(_AGAIN_S)
        return True

    def _list_probes(self) -> list[HealthProbe]:
        return [self._recent.part(), *self._letters.list_probes(), *self._shards.list_probes()]

    def prepare(self, batch: LetterBatch) -> PreparedBatch | None:
        """Decide what is to be written for a batch of letters (first stage of intake); None where the batch is dropped."""
        self._recent.catch_up()
        if self._recent.trouble:
            self._letters.stop(self._recent.trouble)
        # A due time that a wrong clock has made would be wrong for good.
        deadline = clock.Deadline(_CLOCK_S)
        while (now_ms := self._skew.known_ms()) is None and not deadline.has_passed() and not self._letters.closing():
            clock.pause(_AGAIN_S)
        prepared = self._letters.prepare(batch, now_ms)
        if self._traces is not None and prepared is not None:
            prepared.result.told = [row["value"] for row in prepared.result.outcomes]
        return prepared

    def commit(self, written: WrittenBatch | None) -> None:
        """Commit what was written for a batch (last stage of intake), and tell the metrics; do nothing for None."""
        if written and self._letters.commit(written):
            result, now_ms = written.result, clock.wall_ms()
            self.metrics.tell_taken(result.decided, result.families)
            self.metrics.tell_failures(result.failures)
            self.metrics.tell_back(result.back, now_ms)
            self.metrics.tell_parked(result.parked)
            if self._traces is not None:
                self._traces.record_letters(result.told, now_ms)
            for target, letters in result.came_back.items():
                self._shards.shard_context.admission.breakers.note_returned_letters(target, letters, now_ms)

    def apply_portions(self, portions: FoldWork) -> None:
        """Apply committed changelog records to the tables of their shards.

        An error here ends the worker: no later records are applied, lest a gap is folded.
        """
        if self._cut_short:
            return
        self._cut_short = True
        for shard, messages in portions:
            shard.apply_messages(messages)
        self._cut_short = False

    def list_open_shards(self) -> list[Shard]:
        return self._shards.list_open_shards()

    def list_standbys(self) -> list[Shard]:
        return self._shards.standing_by()

    def _to_sweep(self, now_ms: int) -> list[Shard]:
        """Shards in which something may be to be done, those first that were swept longest ago; a glance costs microseconds."""
        found = [shard for shard in self.list_open_shards() if not self._must_rest(shard) and not shard.is_idle(now_ms)]
        return sorted(found, key=lambda shard: shard.progress.last_sweep)

    def sweep_and_rest(self) -> float:
        """Sweep, and return for how many seconds nothing that is in the tables by now will be due; 0 where it may be soon."""
        self.sweep()
        now_ms = self._skew.now_ms()
        if now_ms is None:
            return 0.0
        return find_quiet_s(self.list_open_shards(), self._shards.count_owned(), now_ms)

    def _must_rest(self, shard: Shard) -> bool:
        if self._backlog is None or not self._backlog.holds(shard.changelog.partition, shard.table.next_offset):
            return False
        shard.progress.note_rest()
        return True

    def sweep(self) -> None:
        """Sweep: what is due in shards that no other sweep has taken, a bounded number of batches."""
        shard_context = self._shards.shard_context
        for _ in range(_BATCHES_MAX):
            now_ms = self._skew.now_ms()
            if now_ms is None:
                for shard in self.list_open_shards():
                    shard.progress.note_rest()
                return
            shards = self._to_sweep(now_ms)
            if not shards:
                self.much_is_due = self.sent_few = False
                return
            with self._shards.producers.borrow_producer() as producer:
                if producer is None:
                    self._shards.note_no_producer(shards)
                    return
                swept = joint_sweep.joint_sweep(shards, producer, shard_context, now_ms)
            self._report_sweeps(swept)
            self.much_is_due = joint_sweep.is_full(swept, shard_context)
            self.sent_few = not self.much_is_due and all(shard.quiet(now_ms) for shard in shards)
            if not self.much_is_due:
                # What became due meanwhile is more by the next look; every transaction costs the brokers the same.
                return

    def _report_sweeps(self, swept: Sequence[SweepResult]) -> None:
        sent_at_ms = clock.wall_ms()
        for each in swept:
            if each.sent:
                self.metrics.tell_sent(each.sent, each.due_at_ms, sent_at_ms)
                letter_lines.log_sent(each.sent)
                self.metrics.tell_retried(count_retries(each.sent, each.labels, each.due_at_ms), sent_at_ms)
                if self._traces is not None:
                    self._traces.record_spans(each.sent, each.due_at_ms, sent_at_ms)
            if each.deferred:
                why, letters = "; ".join(each.errors), ", ".join(each.letters)
                log.warning("put back: %s: %s; the letters are %s", dict(each.deferred), why, letters)
                self.metrics.tell_put_back(each.deferred)

    def close_shards(self) -> None:
        """Write down what comes of calls that end soon, and hand over."""
        self.rounds.close()
        calls = self._shards.shard_context.calls
        if calls is not None and calls.drain_calls(_LEAVE_S):
            self.sweep()
        self._shards.close()

    def run_checks(self) -> None:
        """Use another policy file if there is one, and whatever else is looked at now and then."""
        self._policies.refresh_registry(self._use)
        for look in self._looks:
            look()

    def health(self) -> tuple[bool, dict[str, object]]:
        """Whether every owned shard is swept, and what each is doing."""
        shards = {s.changelog.partition: s for s in self._shards.list_open_shards()}
        owned = self._shards.count_owned()
        not_ready = self._not_ready()
        ready = owned > 0 and len(shards) == owned and not not_ready
        phases = {str(n): f"{s.phase.value}: {s.trouble}".removesuffix(": ") for n, s in shards.items()}
        held = {" ".join(lane): why for lane, why in self._shards.shard_context.admission.list_blocked(clock.wall_ms()).items()}
        if why := self._skew.trouble or (self._backlog.message() if self._backlog is not None else ""):
            held["everything"] = why
        asked = {str(n): s.describe_requested(self._shards.shard_context) for n, s in shards.items()}
        about = {"shards_owned": owned, "shards": phases, "blocked": held, "policies": self._policies.describe()}
        about["reschedule"] = {n: told.reschedule for n, told in asked.items() if told.reschedule}
        about["held"] = {str(n): dict(s.moves.held.why) for n, s in shards.items() if s.moves.held.why}
        about["refused"] = worker_status.name_refused_letters(self._refused_letters())
        about["slow"] = {pace.kind: why for pace in self._paces() if (why := pace.describe_slowness())}
        about["actions"] = {n: told.actions for n, told in asked.items() if told.actions}
        about["intake"] = f"read-only: {self._letters.stopped}" if self._letters.stopped else "running"
        about["letters"] = {f"{topic}/{partition}": note for (topic, partition), note in self._letters.notes.copy().items()}
        about["letters_held"] = self._describe_held()
        about["unreadable"] = UNREADABLE.describe_first_ones()
        about["standby"] = {
            str(s.changelog.partition): {"phase": s.phase.value, "lag": s.lag(), "waiting": s.count_waiting()}
            for s in self._shards.standing_by()
        }
        about["not_ready"] = [{"shard": shard, "reason": reason.value, "why": why} for reason, why, shard in not_ready]
        about["reasons"] = {reason.value: count for reason, count in self._reasons().items()}
        return ready, {"ready": ready, **about}

    def _in_phase(self, phase: Phase) -> int:
        return sum(shard.phase is phase for shard in self._shards.list_open_shards())

    def _not_ready(self) -> list[Blocked]:
        opening = [Blocked(Reason.OPENING, "it is being opened", n) for n in self._shards.to_open()]
        shards = [s for s in self._shards.list_open_shards() if s.phase is not Phase.READY]
        phases = [
            Blocked(REASONS.get(s.phase, Reason.BROKEN), s.trouble or f"{s.to_restore()} offsets to read", s.changelog.partition)
            for s in shards
        ]
        stopped = [Blocked(Reason.READ_ONLY, self._letters.stopped)] if self._letters.stopped else []
        return [*opening, *phases, *stopped, *self.watchdog.list_blocked()]

    def _reasons(self) -> Counter[Reason]:
        admission = self._shards.shard_context.admission
        found = Counter(held.reason for held in self._not_ready()) + admission.count_reasons(clock.wall_ms())
        found[Reason.SEALED] = sum(bool(shard.moves.held.why) for shard in self.list_open_shards())
        found[Reason.REFUSED_LETTERS] = len(worker_status.count_refused_letters(self._refused_letters()))
        found[Reason.SLOW_LINK] = sum(bool(pace.describe_slowness()) for pace in self._paces())
        found[Reason.OPEN_TRANSACTION] = len(self._describe_held())
        found[Reason.POLICY_FILE] = int(self._policies.trouble is not None)
        found[Reason.CLOCK] = int(self._skew.trouble is not None)
        return +found

    def _paces(self) -> list[TransactionPace]:
        pace = self._shards.shard_context.pace
        return [self._letters.pace, *([pace] if pace is not None else [])]

    def _describe_held(self) -> dict[str, str]:
        return self._unread.describe_held() if self._unread is not None else {}

    def _refused_letters(self) -> list[RefusedEntry]:
        return worker_status.list_refused_letters(self.list_open_shards(), self._shards.shard_context.admission, clock.wall_ms())

    def _tally(self) -> dict[str, float]:
        found = self._reasons()
        return {reason.value: float(found[reason]) for reason in Reason}

    def _shards_ready(self) -> dict[str, float]:
        troubled = {held.shard for held in self._not_ready()}
        numbers = {s.changelog.partition for s in self._shards.list_open_shards()} | set(self._shards.to_open())
        return {str(n): float(n not in troubled) for n in sorted(numbers)}

    def _watch(self) -> None:
        shards, copies = self._shards.list_open_shards, self._shards.standing_by
        watch, each = self.metrics.watch, self.metrics.watch_each
        each("retry_shard_ready", self._shards_ready)
        each("retry_shard_entries_waiting", lambda: {str(s.changelog.partition): s.count_waiting() for s in shards()})
        each("retry_shard_restored_ratio", lambda: {str(s.changelog.partition): s.measure_restore() for s in shards()})
        each("retry_blocked", self._tally)
        watch("retry_entries_waiting", lambda: sum(s.count_waiting() for s in shards()))
        watch("retry_shards_standby", lambda: len(copies()))
        watch("retry_standby_lag_records", lambda: sum(s.lag() for s in copies()))
        watch("retry_shards_owned", self._shards.count_owned)
        watch("retry_shards_ready", partial(self._in_phase, Phase.READY))
        watch("retry_shards_read_only", partial(self._in_phase, Phase.READ_ONLY))
        watch("retry_shards_halted", partial(self._in_phase, Phase.HALTED))
        watch("retry_intake_read_only", lambda: bool(self._letters.stopped))
        watch("retry_restore_remaining_records", lambda: sum(s.to_restore() for s in shards()))
        admission, policies, skew = self._shards.shard_context.admission, self._policies, self._skew
        watch("retry_lanes_blocked", lambda: len(admission.list_blocked(clock.wall_ms())))
        each("retry_circuit_breaker_open", lambda: admission.breakers.openness(clock.wall_ms()))
        each("retry_transaction_bytes_max", lambda: {pace.kind: float(pace.bytes_max) for pace in self._paces()})
        each("retry_entries_refused", lambda: worker_status.count_refused_letters(self._refused_letters()))
        each("retry_paused", self._count_paused)
        if self._unread is not None:
            each("retry_letters_unread", self._unread.count_by_reason)
        watch("retry_clock_trusted", lambda: not skew.trouble)
        watch("retry_lineages", lambda: len(self._recent.lineages))
        watch("retry_policy_file_valid", lambda: policies.trouble is None)
        self.metrics.count_each("retry_policy_file_refused_total", lambda: {(): float(policies.refusals)})
        watch("retry_policy_file_used_timestamp_seconds", lambda: policies.used_at_ms / 1_000)

    def _count_paused(self) -> dict[str, float]:
        controls = [shard.table.controls for shard in self.list_open_shards()]
        found = {pause for each in controls for pause in control_records.read_pauses(each, clock.wall_ms())}
        return {scope: float(sum(of == scope for of, _ in found)) for scope in control_records.SCOPES}


def find_quiet_s(shards: Sequence[Shard], owned: int, now_ms: int) -> float:
    """Return for how many seconds nothing will be due in open shards, of so many that this worker owns; at most one second."""
    settled = 0 < owned == len(shards) and all(shard.phase is Phase.READY for shard in shards)
    rests_s = _QUIET_S if settled else _QUIET_S[1:]
    return next((s for s in rests_s if all(shard.quiet(now_ms + int(s * 1_000)) for shard in shards)), 0.0)
