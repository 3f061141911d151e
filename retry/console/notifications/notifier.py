"""Tells targets what rules choose: at least once, and once unless an answer or a record is lost; by one console of several.

A look lists what is new or stands, leaves out what `<app>-notes` says was told, and sends the rest. When a target has taken a
message, that is written down; only then is it told. So nothing is told twice after a restart, or by two consoles, with two
exceptions: the console ends between the answer and the record, or the answer is lost.

Nothing is queued: what could not be told is found again at the next look, for seven days, while it still matters. A target that
fails is tried again after 15 s, twice as long each time, up to 15 minutes. No page and no other target waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from retry import clock
from retry.console.folding.folding_process import LIVE
from retry.console.folding.notes import FailingTarget, Telling, Told
from retry.console.notifications import rule_file
from retry.console.notifications.events import Candidate, Event, Happenings
from retry.console.notifications.rule_file import FAILED_AGAIN, NEAR_RETENTION, OVERDUE, Rule, RuleFile, Target
from retry.console.notifications.targets import Senders, find_public_url
from retry.console.reading.notes import ToldEvent
from retry.console.reading.replica import Replica
from retry.errors import RebuildInProgress, RetryError
from retry.kafka import topics
from retry.kafka.group_member import ElectedMember
from retry.policies.masks import MESSAGE, list_masking_teams
from retry.policies.registry import Registry
from retry.printable import escape_unprintable
from retry.process.start import find_open_file
from retry.settings import Settings

log = logging.getLogger(__name__)

_ASK_S, _LOOK_EVERY_S = 1.0, 5.0
_THREADS, _EVENTS_MAX = 4, 1_000
# After a message to people, what comes within a minute is gathered: a thousand new failures are a few messages.
_GATHER_MS = 60_000
_AGAIN_MS, _AGAIN_MAX_MS = 15_000, 15 * 60_000
# A replica that was up to date so long after this console was chosen has all that another one wrote before.
_MARGIN_MS = 1_000
# What stands no more for so long begins anew when it comes again.
_OVER_MS, _KEPT_MS = 10 * 60_000, 30 * 86_400_000
_STANDING = frozenset({OVERDUE, NEAR_RETENTION})
# What a rule did not choose is asked again when it has failed again, and after so long in any case.
_DECLINED_MS = 60_000


class Failing:
    """How often in a row a target has failed, why, and when it is tried again."""

    def __init__(self, reason: str, tries: int, now_ms: int) -> None:
        self.reason, self.tries = reason, tries
        self.again_ms = now_ms + min(_AGAIN_MS << min(tries - 1, 10), _AGAIN_MAX_MS)


class Notifier:
    """Looks every five seconds in a thread of its own, and sends in a few others, where `member` says that this console tells."""

    def __init__(
        self, replica: Replica, rules: Callable[[], RuleFile], senders: Senders, member: ElectedMember,
        clock_ms: Callable[[], int] = clock.wall_ms, list_silent_teams: Callable[[], Collection[str]] = tuple,
    ) -> None:  # fmt: skip
        self._replica, self._rules, self._senders, self._member, self._clock_ms = replica, rules, senders, member, clock_ms
        self._happenings = Happenings(replica, clock_ms, list_silent_teams)
        self.sent, self.failed = Counter[str](), Counter[str]()
        self._failing: dict[str, Failing] = {}
        # Told by this process, until the replica shows it; where a record could not be written it is written at the next look.
        self._told: dict[ToldEvent, Told] = {}
        self._over_since_ms: dict[ToldEvent, int] = {}
        self._busy: dict[str, Future[None]] = {}
        self._gathering_until_ms: dict[str, int] = {}
        self._declined: dict[tuple[str, int, str], tuple[int, int]] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._pool = ThreadPoolExecutor(_THREADS, "notifications")
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End after the messages that are under way, so that they are written down."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._member.close()

    def count_sent(self) -> dict[tuple[str, str], float]:
        with self._lock:
            results = (("sent", self.sent), ("failed", self.failed))
            return {(target, result): float(n) for result, counts in results for target, n in counts.items()}

    def _run(self) -> None:
        looking = clock.Interval(_LOOK_EVERY_S, at_once=True)
        while not self._stop.wait(_ASK_S):
            try:
                if self._is_chosen() and looking.is_due():
                    self.look()
            except RebuildInProgress:
                continue
            except (RetryError, TimeoutError) as error:
                log.warning("what is new cannot be told: %s", error)
            except Exception:
                # Whatever it is, the next look may go well: nobody else would tell.
                log.exception("what is new cannot be told")

    def _is_chosen(self) -> bool:
        if not self._member.is_holder() or self._member.since_ms is None:
            return False
        fresh = self._replica.freshness()
        return fresh.state == LIVE and fresh.as_of_ms is not None and fresh.as_of_ms > self._member.since_ms + _MARGIN_MS

    def look(self) -> None:
        """Look once: find what is to be told, and have it sent in other threads. Raises RebuildInProgress."""
        chosen, now_ms = self._rules(), self._clock_ms()
        told = self._load_told()
        beginnings = self._begin_rules(chosen)
        candidates = self._happenings.list_candidates(min((each.at_ms for each in beginnings.values()), default=now_ms))
        pending: defaultdict[str, dict[str, Event]] = defaultdict(dict)
        for rule in chosen.rules:
            if rule.id in beginnings and not rule.is_quiet(now_ms) and self._may_try(rule.target, now_ms):
                self._choose_events(rule, beginnings[rule.id], candidates, told, pending[rule.target])
        for name, events in pending.items():
            if events:
                self._busy[name] = self._pool.submit(self._tell_target, chosen.targets[name], list(events.values()))
        standing = {each.id for each in candidates}
        self._declined = {key: until for key, until in self._declined.items() if key[2] in standing}
        self._forget_old(told, standing, now_ms)

    def wait_for_sends(self) -> None:
        for sending in list(self._busy.values()):
            sending.result()

    def _load_told(self) -> Mapping[ToldEvent, Told]:
        shown = self._replica.told.list_told()
        with self._lock:
            unwritten = {event: record for event, record in self._told.items() if event not in shown}
            self._told = unwritten
        if unwritten:
            self._replica.told.write_told(unwritten)
        return {**shown, **unwritten}

    def _begin_rules(self, chosen: RuleFile) -> dict[str, Telling]:
        """Since when each rule holds; one that is new holds from now on."""
        known = self._replica.told.list_beginnings()
        ids = {rule.id for rule in chosen.rules}
        new = ids - known.keys()
        changes: dict[str, Telling | None] = dict.fromkeys(known.keys() - ids)
        if new:
            # Who failed again before, and was not told then, is no news.
            again = tuple(f"{FAILED_AGAIN}/{group}/{at_ms}" for group, at_ms in self._replica.find_reopened().items())
            changes |= dict.fromkeys(new, Telling(self._clock_ms(), again))
        if changes:
            self._replica.told.write_beginnings(changes)
        return {rule: beginning for rule, beginning in {**known, **changes}.items() if beginning is not None}

    def _may_try(self, target: str, now_ms: int) -> bool:
        sending = self._busy.get(target)
        if sending is not None and not sending.done():
            return False
        if sending is not None and (error := sending.exception()) is not None:
            log.error("telling %s ended: %r", target, error)
            del self._busy[target]
        failing = self._failing.get(target)
        return max(failing.again_ms if failing else 0, self._gathering_until_ms.get(target, 0)) <= now_ms

    def _choose_events(
        self, rule: Rule, beginning: Telling, candidates: list[Candidate], told: Mapping[ToldEvent, Told],
        chosen: dict[str, Event],
    ) -> None:  # fmt: skip
        now_ms = self._clock_ms()
        known = frozenset(beginning.known)
        for each in candidates:
            if len(chosen) == _EVENTS_MAX:
                return
            is_old = each.at_ms is not None and each.at_ms < beginning.at_ms
            if is_old or each.id in known or each.id in chosen or ToldEvent(rule.target, each.id) in told:
                continue
            asked = rule.id, rule.at_least, each.id
            changed_ms, until_ms = self._declined.get(asked, (-1, 0))
            if changed_ms == each.changed_ms and now_ms < until_ms:
                continue
            if (event := self._happenings.describe(each, rule)) is not None:
                chosen[each.id] = event
            else:
                self._declined[asked] = each.changed_ms, now_ms + _DECLINED_MS

    def _tell_target(self, target: Target, events: list[Event]) -> None:
        for delivery in self._senders.group_deliveries(target, events):
            if self._stop.is_set():
                return
            try:
                self._senders.send(target, delivery)
            except RetryError as failed:
                self._note_failure(target, escape_unprintable(str(failed)))
                return
            self._note_success(target, delivery.events)

    def _note_success(self, target: Target, events: Sequence[Event]) -> None:
        now_ms = self._clock_ms()
        records = {ToldEvent(target.name, each.id): Told(now_ms, each.title, each.path) for each in events}
        with self._lock:
            self.sent[target.name] += 1
            self._told |= records
            was_failing = self._failing.pop(target.name, None) is not None
            self._gathering_until_ms[target.name] = 0 if target.is_webhook else now_ms + _GATHER_MS
        try:
            self._replica.told.write_told(records)
            if was_failing or target.name in self._replica.told.list_failing():
                self._replica.told.write_failing(target.name, None)
        except (RetryError, TimeoutError) as error:
            log.warning("what %s was told is not written down yet, and is at the next look: %s", target.name, error)

    def _note_failure(self, target: Target, reason: str) -> None:
        now_ms = self._clock_ms()
        with self._lock:
            self.failed[target.name] += 1
            before = self._failing.get(target.name)
            self._failing[target.name] = Failing(reason, before.tries + 1 if before else 1, now_ms)
        if before is not None and before.reason == reason:
            return
        log.warning("%s was not told: %s", target.name, reason)
        try:
            since = self._replica.told.list_failing().get(target.name)
            record = FailingTarget(since.since_ms if since else now_ms, reason)
            self._replica.told.write_failing(target.name, record)
        except (RetryError, TimeoutError) as error:
            log.warning("that %s does not answer is not written down: %s", target.name, error)

    def _forget_old(self, told: Mapping[ToldEvent, Told], standing: set[str], now_ms: int) -> None:
        """Delete what was told of what is over: of what comes and goes after ten minutes, of the rest after thirty days."""
        over = [each for each in told if each.event not in standing]
        self._over_since_ms = {each: self._over_since_ms.get(each, now_ms) for each in over}
        gone = [
            each for each in over
            if (now_ms - self._over_since_ms[each] >= _OVER_MS if each.event.split("/")[0] in _STANDING
                else now_ms - told[each].at_ms >= _KEPT_MS)
        ]  # fmt: skip
        if gone:
            self._replica.told.write_told(dict.fromkeys(gone[:_EVENTS_MAX]))
            with self._lock:
                for each in gone:
                    self._told.pop(each, None)


def open_notifier(settings: Settings, replica: Replica, registry: Callable[[], Registry]) -> Notifier | None:
    """Put a notifier together; None where no file is set. Raises SettingsInvalid: a file is of no use, or Apprise is missing."""
    rules = rule_file.load(settings)
    if rules is None:
        return None
    senders = Senders(settings, find_public_url(settings))
    for target in rules.current().targets.values():
        senders.check_target(target)
        if warning := find_open_file(rule_file.SETTING, target.file, is_secret=True):
            log.warning("%s", warning)
    names = topics.build_topic_names(settings.app_id)
    member = ElectedMember(settings, names.notifications_group, names.notes)
    silent_teams = lambda: list_masking_teams(registry().masks, MESSAGE)  # noqa: E731
    return Notifier(replica, rules.current, senders, member, list_silent_teams=silent_teams)
