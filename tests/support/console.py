"""The console without Kafka: a replica of given rows, and a browser that asks its application."""

from __future__ import annotations

import atexit
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from retry import clock
from retry.console.acting.previews import Previews
from retry.console.folding.notes import FailingTarget, Telling, Told
from retry.console.reading import lists
from retry.console.reading.action_outcomes import ActionOutcome, SentOutcome
from retry.console.reading.group_details import CommonValue, FailureBar, GroupDetails, PastEvent, Period
from retry.console.reading.group_list import OPEN, GroupPage
from retry.console.reading.group_order import MOST_LETTERS, Order
from retry.console.reading.groups import FailureTimes
from retry.console.reading.lists import AuditedAction
from retry.console.reading.notes import ToldEvent
from retry.console.reading.payloads import Scanned
from retry.console.reading.urgent_failures import FadingLetters, OverdueLetters, Rates, UrgentFailures
from retry.console.rows import (  # fmt: skip
    AuditRow,
    BreakerState,
    DepartedLetter,
    DueBar,
    Freshness,
    Group,
    LetterRow,
    LineageEvent,
    Names,
    Now,
    Page,
    Recovery,
    SavedFilter,
    Scope,
    ShardState,
    WorkerState,
)
from retry.console.web.app import Console
from retry.console.web.application import Assets, Routes, build_application, build_templates
from retry.console.web.live import Live
from retry.console.web.oidc import Provider
from retry.console.web.rights import Tokens
from retry.console.web.sessions import CookieSeal, Sessions
from retry.console.web.sign_in import Origin, ProxySignIn, SignIn
from retry.errors import BrokersUnreachable, CursorStale
from retry.operations.act.overview import ActionOverview
from retry.operations.found_letter import FoundLetter, make_parked_letter
from retry.operations.letter_filter.predicate import Predicate
from retry.operations.letter_filter.syntax import Filter
from retry.policies.registry import Registry
from retry.record import CREATE_TIME, Record
from retry.settings import Settings
from retry.telemetry.unreadable_records import UnreadableTopic

NOW_MS = 1_790_000_000_000
ORIGIN = "http://127.0.0.1:8082"
# Files of tokens, which are read for as long as a console is asked.
_FOLDER, _FILES = tempfile.TemporaryDirectory(prefix="retry-console-"), itertools.count()
atexit.register(_FOLDER.cleanup)


def letter(number: int = 1, team: str | None = "payments", **fields: Any) -> LetterRow:
    """Make the row of a parked letter."""
    given: dict[str, Any] = {
        "name": f"parked/0/{number}", "state": "parked", "kind": "letter", "team": team, "topic": "orders.DLT", "partition": 0,
        "offset": number, "target": "parked", "key": b"k%d" % number, "attempt": 2, "due_at_ms": None, "failed_ms": NOW_MS,
        "first_failed_ms": NOW_MS - 60_000, "exception": "a.GatewayTimeout", "cause": "java.net.ConnectException",
        "message": f"order {number} failed", "frames": None, "fingerprint": "f00d", "group": "f00d",
        "policy": f"{team}/orders.DLT", "reason": "max_attempts", "lineage": f"lineage-{number}", "consumer_group": "billing",
        "size_bytes": 100,
    }  # fmt: skip
    return LetterRow(**{**given, **fields})


def group(id_: str = "f00d", teams: tuple[str, ...] = ("payments",), **fields: Any) -> Group:
    """A kind of failures."""
    given: dict[str, Any] = {
        "cause": "java.net.ConnectException", "message": "order # failed", "waiting": 1, "parked": 2, "trend": (0,) * 23 + (3,),
        "first_ms": NOW_MS - 3_600_000, "last_ms": NOW_MS, "sent": 10, "came_back": 4, "topics": ("orders.DLT",), "teams": teams,
    }  # fmt: skip
    return Group(id_, **{**given, **fields})


@dataclass
class FakeNotes:
    """Notes that are given."""

    saved: list[SavedFilter] = field(default_factory=list)

    def filters(self, scope: Scope) -> list[SavedFilter]:
        return [each for each in self.saved if scope is None or not each.team or each.team in scope]

    def changes(self, group: str) -> list[tuple[str, str, str, int]]:
        return [("c1", "merged 0bad into it", "ada", NOW_MS)]


@dataclass
class FakePayloads:
    """Records that are given, by the name of the letter."""

    records: dict[str, Record] = field(default_factory=dict)
    trouble: Exception | None = None

    def find_letter(self, scope: Scope, name: str) -> FoundLetter | None:
        if self.trouble:
            raise self.trouble
        record = self.records.get(name)
        return None if record is None else make_parked_letter(record, Registry())

    def position(self, scope: Scope, letter_filter: Filter, after: str | None) -> tuple[str, None]:
        if after == "stale":
            raise CursorStale
        return "", None

    def scan(
        self, scope: Scope, letter_filter: Filter, after: str | None, limit: int, is_cancelled: Callable[[], bool]
    ) -> Scanned:
        return Scanned([letter(7)], 40, "cancelled" if is_cancelled() else "time", "on")


class FakeTold:
    """Keeps what was told in memory; `trouble` is raised by whoever writes."""

    def __init__(self) -> None:
        self.told: dict[ToldEvent, Told] = {}
        self.beginnings: dict[str, Telling] = {}
        self.failing: dict[str, FailingTarget] = {}
        self.trouble: Exception | None = None

    def list_told(self) -> dict[ToldEvent, Told]:
        return dict(self.told)

    def list_beginnings(self) -> dict[str, Telling]:
        return dict(self.beginnings)

    def list_failing(self) -> dict[str, FailingTarget]:
        return dict(self.failing)

    def write_told(self, told: Mapping[ToldEvent, Told | None]) -> None:
        self._put(self.told, told)

    def write_beginnings(self, beginnings: Mapping[str, Telling | None]) -> None:
        self._put(self.beginnings, beginnings)

    def write_failing(self, target: str, record: FailingTarget | None) -> None:
        self._put(self.failing, {target: record})

    def _put(self, kept: dict[Any, Any], records: Mapping[Any, Any]) -> None:
        if self.trouble:
            raise self.trouble
        for key, record in records.items():
            kept.pop(key, None)
            if record is not None:
                kept[key] = record


@dataclass
class FakeReplica:
    """Answers with what it is given, as far as a scope may see it; filters are not looked at."""

    rows: Sequence[LetterRow] = ()
    kinds: Sequence[Group] = ()
    state: Freshness = field(default_factory=lambda: Freshness("live", 1.0, NOW_MS, 0))
    trouble: Exception | None = None
    nothing_matches: str | None = None
    notes: FakeNotes = field(default_factory=FakeNotes)
    payloads: FakePayloads = field(default_factory=FakePayloads)
    held: tuple[Any, ...] = ()
    overdue: int = 0
    rates: Rates | None = None
    failed_again: dict[str, int] = field(default_factory=dict)
    workers: tuple[WorkerState, ...] = ()
    breakers: tuple[BreakerState, ...] = ()
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    asked_groups: list[tuple[str, str | None, str, str]] = field(default_factory=list)
    listed: GroupPage | None = None
    audited: Sequence[AuditRow] = ()
    before: tuple[PastEvent, ...] = ()
    control_records: list[dict[bytes, bytes]] = field(default_factory=lambda: [{}])
    late: list[OverdueLetters] = field(default_factory=list)
    fading: list[FadingLetters] = field(default_factory=list)
    told: FakeTold = field(default_factory=FakeTold)
    departed: dict[str, DepartedLetter] = field(default_factory=dict)

    def _seen(self, scope: Scope) -> list[LetterRow]:
        if self.trouble:
            raise self.trouble
        return [row for row in self.rows if scope is None or row.team in scope]

    def freshness(self) -> Freshness:
        return self.state

    def generation(self) -> int:
        return len(self.rows)

    def load_now(self, scope: Scope) -> Now:
        seen = self._seen(scope)
        hours = tuple(range(24))
        return Now(
            NOW_MS, sum(row.state == "waiting" for row in seen), sum(row.state == "parked" for row in seen), 0, 0,
            1 if seen else 0, (DueBar(NOW_MS, NOW_MS + 60_000, 5), DueBar(NOW_MS + 60_000, NOW_MS + 120_000, 0)),
            self.overdue, None, (Recovery(1, 10, 4),), self.held, 0, (ShardState(0, 10, 12),) if scope is None else (),
            hours, hours,
            tuple(NOW_MS + (n - 24) * 3_600_000 for n in hours), self.workers, self.breakers,
            actions=tuple(each for each in lists.list_visible_actions(self.controls(), scope) if each.is_under_way),
        )  # fmt: skip

    def load_urgent_failures(self, scope: Scope) -> UrgentFailures:
        kinds = self.list_groups(scope, None).rows  # type: ignore[arg-type]
        owned = tuple(each for each in kinds if each.owner)
        growing = tuple((each, self.rates) for each in kinds) if self.rates else ()
        return UrgentFailures(tuple(kinds), len(kinds), (), growing, owned)

    def list_groups(
        self,
        scope: Scope,
        letter_filter: Filter,
        after: str | None = None,
        limit: int = 50,
        *,
        show: str = OPEN,
        order: Order = MOST_LETTERS,
        counts_beside: bool = True,
    ) -> GroupPage:
        self._seen(scope)
        if letter_filter is not None:
            self.asked_groups.append((str(letter_filter), after, show, str(order)))
        mine = {each.id: tuple(team for team in each.teams if scope is None or team in scope) for each in self.kinds}
        kinds = [replace(each, teams=mine[each.id]) for each in self.kinds if scope is None or mine[each.id]]
        listed = self.listed or GroupPage([])
        return replace(listed, rows=kinds, count=len(kinds), nothing_matches=self.nothing_matches)

    def find_group(self, scope: Scope, group_id: str) -> Group | None:
        return next((each for each in self.list_groups(scope, None).rows if each.id == group_id), None)  # type: ignore[arg-type]

    def groups_since(self, since_ms: int) -> dict[str, FailureTimes]:
        self._seen(None)
        times = {each.id: (each.first_ms, each.last_ms or 0) for each in self.kinds}
        return {
            each: FailureTimes(first, last) for each, (first, last) in times.items() if first is not None and first >= since_ms
        }  # fmt: skip

    def list_overdue(self, before_ms: int) -> list[OverdueLetters]:
        return self.late

    def list_fading(self) -> list[FadingLetters]:
        return self.fading

    def find_reopened(self) -> dict[str, int]:
        return self.failed_again

    def in_group(self, field: str, name: str) -> Predicate:
        return lambda letter: letter.fingerprint == name

    def load_group_details(self, scope: Scope, group_id: str, period: Period) -> GroupDetails:
        common = (
            CommonValue("topic", "orders.DLT", 2), CommonValue("topic", "refunds.DLT", 1),
            CommonValue("partition", "3", 2, "orders.DLT"), CommonValue("version", "2.14.1", 3),
            CommonValue("frames", "a.B.c\nd.E.f", 3),
        )  # fmt: skip
        first = NOW_MS // period.bar_ms - period.bars + 1
        bars = [FailureBar(n * period.bar_ms, (n + 1) * period.bar_ms, 3) for n in range(first, first + period.bars)]
        return GroupDetails(tuple(bars), common, (Recovery(1, 10, 4, 1),), self.before)

    def list_letters(self, scope: Scope, letter_filter: Filter, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        self.asked.append((scope, letter_filter, after, limit))
        seen = self._seen(scope)
        return Page(seen[:limit], "next" if len(seen) > limit else None, len(seen), False, self.nothing_matches)

    def find_letter(self, scope: Scope, name: str) -> LetterRow | None:
        return next((row for row in self._seen(scope) if row.name == name), None)

    def find_departed(self, scope: Scope, name: str) -> DepartedLetter | None:
        return self.departed.get(name) if scope is None or "payments" in scope else None

    def lineage(self, scope: Scope, lineage: str) -> list[LineageEvent]:
        failed = LineageEvent(NOW_MS, "failed", 1, "orders.DLT/0/1")
        return [failed, LineageEvent(NOW_MS, "parked", 2, "parked/0/1", "max_attempts")]

    def list_filter_names(self, scope: Scope) -> Names:
        seen = self._seen(scope)
        return Names(tuple(sorted({row.team for row in seen if row.team})), ("orders.DLT",), ("a.GatewayTimeout",))

    def named_entries(self, scope: Scope, kind: str, after: str | None = None, limit: int = 100) -> Page[LetterRow]:
        return Page([row for row in self._seen(scope) if row.kind == kind])

    def list_audit_rows(
        self, scope: Scope, after: str | None = None, limit: int = 100, wanted: Mapping[str, str] | None = None
    ) -> Page[AuditRow]:
        self.asked.append((scope, wanted, after, limit))
        return Page([row for row in self.audited if scope is None or row.team in scope])

    def list_audited_actions(
        self, scope: Scope, after: str | None = None, limit: int = 100, wanted: Mapping[str, str] | None = None
    ) -> Page[AuditedAction]:
        page = self.list_audit_rows(scope, after, limit, wanted)
        rows = [AuditedAction(row, row.at_ms, (row.team,) if row.team else (), (row,)) for row in page.rows]
        return Page(rows, page.after, page.count)

    def open_breakers(self) -> dict[str, str]:
        return {}

    def unreadable(self) -> list[UnreadableTopic]:
        return []

    def load_outcome(self, about: ActionOverview) -> ActionOutcome:
        steps = tuple(SentOutcome(each.sent, each.failed) for each in about.steps)
        return ActionOutcome(SentOutcome(sum(each.sent for each in steps), sum(each.failed_again for each in steps)), steps)

    def controls(self) -> list[dict[bytes, bytes]]:
        return self.control_records


class FakeAudit:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.trouble: Exception | None = None

    def reveal(self, by: str, letters: Sequence[str], teams: Sequence[str] = ()) -> None:
        self.write("reveal", by, "", letters, teams)

    def write(self, kind: str, by: str, reason: str, letters: Sequence[str] = (), teams: Sequence[str] = ()) -> None:
        if self.trouble:
            raise self.trouble
        self.told.append((kind, by, reason, list(letters), sorted(teams)))


class OfflineConsole(Console):
    """A console whose brokers are away."""

    def cluster(self) -> Any:
        raise BrokersUnreachable("127.0.0.1:1", "none there")


@dataclass
class Served:
    """A console and what it stands on."""

    console: Console
    app: Any
    replica: FakeReplica
    audit: FakeAudit

    def browser(self, origin: str = ORIGIN) -> TestClient:
        """A browser that is not signed in, and follows no redirect."""
        return TestClient(self.app, base_url=origin, follow_redirects=False, raise_server_exceptions=False)


def serve_console(
    replica: FakeReplica | None = None, *, tokens: str = "", provider: Provider | None = None, secure: bool = False,
    url: str = "", behind_proxy: bool = False, more: Sequence[Routes] = (), every_s: float = 0.01, streams_max: int = 200,
    now_ms: Callable[[], int] = clock.wall_ms, settings: Settings | None = None, key: Path | None = None,
    proxy: ProxySignIn | None = None,
) -> Served:
    """Build the console's application over a replica.

    Args:
      tokens: lines of the file of tokens; empty where nobody has to sign in.
      key: the file of a key that other consoles have, too.
    """
    replica, audit, found = replica or FakeReplica(), FakeAudit(), None
    if tokens:
        path = Path(_FOLDER.name) / f"tokens-{next(_FILES)}"
        path.write_text(tokens)
        found = Tokens(path)
    seal, origin = CookieSeal(key), Origin(secure, url, behind_proxy)
    sign_in = SignIn(Sessions(3_600_000, now_ms, seal=seal), found, provider, origin, now_ms, seal=seal, proxy=proxy)
    assets, live = Assets(), Live(replica.generation, now_ms, every_s=every_s, streams_max=streams_max)
    console = OfflineConsole(
        settings or Settings(), replica, Registry, audit, Previews(), sign_in, live, build_templates(assets),  # type: ignore[arg-type]
        clock_ms=lambda: NOW_MS,
    )  # fmt: skip
    return Served(console, build_application(console, assets, more), replica, audit)


def settings_with_rules(rules: str) -> Settings:
    """Settings with a file of notifications."""
    path = Path(_FOLDER.name) / f"notifications-{next(_FILES)}.yaml"
    path.write_text(rules)
    return Settings(console_notifications=path)


def csrf_of(html: str) -> str:
    """The token that a page's forms have."""
    return html.partition('name="csrf" value="')[2].partition('"')[0]


def record(name: str, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()) -> Record:
    """The record of a parked letter of this name."""
    topic, partition, offset = name.split("/")
    source = f"orders.DLT/0/{offset}".encode()
    return Record((topic, int(partition), int(offset)), b"k", value, [*headers, ("retry-source", source)], (CREATE_TIME, NOW_MS))
