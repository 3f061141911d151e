"""What rules choose is told once, also after a restart and by two; what fails is told later; what letters say is inert."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retry.console.folding.notes import Told
from retry.console.notifications.events import OLDEST_MS, Event, make_inert
from retry.console.notifications.notifier import Notifier
from retry.console.notifications.rule_file import Target, parse
from retry.console.notifications.targets import Delivery, Senders
from retry.console.reading.notes import ToldEvent
from retry.console.reading.urgent_failures import FadingLetters, OverdueLetters
from retry.delay_queue import action_records
from retry.delay_queue.action_records import Action, Order
from retry.errors import NotificationFailed, RebuildInProgress, RecordUnwritten
from retry.settings import Settings
from tests.support.acting_console import ActingReplica
from tests.support.console import NOW_MS, group

URL = "https://retry.example.com"
TARGETS = "targets: {chat: {apprise: /chat}, pager: {apprise: /pager}, bot: {webhook: /bot}}\n"
HEAD = action_records.build_head_key(bytes.fromhex("00000000000000aa"))
MINUTE_MS = 60_000


class GivenMember:
    """Says that this console is the one that tells."""

    since_ms = 0

    def is_holder(self) -> bool:
        return True

    def close(self) -> None:
        """There is no group to leave."""


class KeptSends(Senders):
    """Keeps what is sent; refuses where `trouble` says so."""

    def __init__(self) -> None:
        super().__init__(Settings(), URL)
        self.sent: list[tuple[str, Delivery]] = []
        self.trouble: Callable[[Target], str | None] = lambda _: None

    def send(self, target: Target, delivery: Delivery, *, is_test: bool = False) -> None:
        if reason := self.trouble(target):
            raise NotificationFailed(reason)
        self.sent.append((target.name, delivery))

    def take(self) -> list[tuple[str, str]]:
        """Targets and titles of what was sent since this was asked last."""
        sent, self.sent = self.sent, []
        return [(name, delivery.message.title) for name, delivery in sent]


class Bench:
    """A replica, and notifiers over it whose clock is turned by hand."""

    def __init__(self) -> None:
        self.replica, self.now_ms, self.sends = ActingReplica(), NOW_MS, KeptSends()
        self._open: list[Notifier] = []
        self.rules = "rules: [{to: chat}]"

    def notifier(self) -> Notifier:
        made = Notifier(
            self.replica, lambda: parse(TARGETS + self.rules, "n.yaml"), self.sends, GivenMember(), lambda: self.now_ms,  # type: ignore[arg-type]
        )  # fmt: skip
        made._happenings._asking._seconds = 0.0
        self._open.append(made)
        return made

    def look(self, notifier: Notifier, later_ms: int = MINUTE_MS) -> list[tuple[str, str]]:
        self.now_ms += later_ms
        notifier.look()
        notifier.wait_for_sends()
        return self.sends.take()

    def fail(self, *ids: str, **fields: Any) -> None:
        """Kinds of failures that are new now."""
        fields.setdefault("teams", ("shop",))
        self.replica.kinds = [*self.replica.kinds, *(group(each, first_ms=self.now_ms, **fields) for each in ids)]

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_what_was_there_before_is_not_told_and_what_is_new_is_told_once(bench: Bench) -> None:
    bench.fail("aa")
    bench.replica.failed_again = {"aa": 5}
    bench.now_ms += 1
    notifier = bench.notifier()
    assert bench.look(notifier, 0) == []
    bench.now_ms += 1
    bench.fail("b/b")
    bench.replica.failed_again = {"aa": NOW_MS}
    assert bench.look(notifier) == [("chat", "Failed again: shop"), ("chat", "New failure: shop")]
    assert bench.look(notifier) == []
    told = bench.replica.told.told[ToldEvent("chat", "new_failure/b/b")]
    assert told == Told(bench.now_ms - MINUTE_MS, "New failure: shop", "/failures/b%2Fb")


def test_nothing_is_told_twice_after_a_restart_or_by_another_console(bench: Bench) -> None:
    first = bench.notifier()
    assert bench.look(first) == []
    bench.fail("aa")
    assert bench.look(first) == [("chat", "New failure: shop")]
    second = bench.notifier()
    assert bench.look(second) == []
    bench.fail("bb")
    assert bench.look(second) == [("chat", "New failure: shop")]
    assert bench.look(first) == []


def test_what_happens_while_no_console_runs_is_told_by_the_next(bench: Bench) -> None:
    bench.look(bench.notifier())
    bench.now_ms += 60 * MINUTE_MS
    bench.fail("aa")
    assert bench.look(bench.notifier()) == [("chat", "New failure: shop")]
    bench.fail("bb")
    bench.now_ms += OLDEST_MS
    assert bench.look(bench.notifier()) == [], "nobody wants to hear of it any more"


def test_a_send_whose_record_is_lost_is_not_made_again_by_the_same_console(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa")
    bench.replica.told.trouble = RecordUnwritten("nobody acknowledged")
    assert bench.look(notifier) == [("chat", "New failure: shop")]
    with pytest.raises(RecordUnwritten):
        bench.look(notifier)
    bench.replica.told.trouble = None
    assert bench.look(notifier) == []
    assert list(bench.replica.told.told) == [ToldEvent("chat", "new_failure/aa")]


def test_one_target_that_fails_is_tried_again_and_no_other_waits_for_it(bench: Bench) -> None:
    bench.rules = "rules: [{to: [chat, pager]}]"
    notifier = bench.notifier()
    bench.look(notifier)
    bench.sends.trouble = lambda target: "said 500" if target.name == "pager" else None
    bench.fail("aa")
    assert bench.look(notifier) == [("chat", "New failure: shop")]
    assert bench.replica.told.failing["pager"].reason == "said 500"
    began_ms = bench.now_ms
    assert bench.look(notifier, 14_000) == []
    assert notifier.count_sent()["pager", "failed"] == 1, "before its time it is not tried"
    assert bench.look(notifier, 1_000) == []
    assert notifier.count_sent()["pager", "failed"] == 2
    assert bench.look(notifier, 29_000) == []
    assert notifier.count_sent()["pager", "failed"] == 2
    bench.sends.trouble = lambda _: None
    assert bench.look(notifier, 1_000) == [("pager", "New failure: shop")]
    assert bench.replica.told.failing == {}
    assert bench.now_ms - began_ms == 45_000
    assert notifier.count_sent() == {("chat", "sent"): 1, ("pager", "sent"): 1, ("pager", "failed"): 2}


def test_in_quiet_hours_nothing_is_told_and_afterwards_what_still_matters(bench: Bench) -> None:
    hour = NOW_MS // 3_600_000 % 24
    bench.rules = (
        f"rules: [{{to: chat, quiet_hours: {{from: '{(hour + 1) % 24:02}:00', to: '{(hour + 3) % 24:02}:00', zone: UTC}}}}, "
        "{to: pager, events: [overdue]}]"
    )
    notifier = bench.notifier()
    assert bench.look(notifier) == []
    bench.now_ms = (NOW_MS // 3_600_000 + 1) * 3_600_000
    bench.fail("aa", "bb")
    bench.replica.late = [OverdueLetters("shop", 3, NOW_MS)]
    assert bench.look(notifier) == [("pager", "Overdue: shop")], "other rules are told"
    bench.replica.kinds = [each for each in bench.replica.kinds if each.id != "bb"]
    bench.replica.late = []
    bench.now_ms = (NOW_MS // 3_600_000 + 3) * 3_600_000
    assert bench.look(notifier) == [("chat", "New failure: shop")]


def test_a_rule_chooses_by_team_and_sees_no_other(bench: Bench) -> None:
    bench.rules = "rules: [{to: chat, teams: [shop]}, {to: bot, teams: [bank], events: [new_failure]}]"
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa", teams=("shop", "bank"))
    bench.fail("bb", teams=("other",))
    bench.replica.late = [OverdueLetters("other", 3, NOW_MS), OverdueLetters("shop", 1, NOW_MS)]
    bench.replica.fading = [FadingLetters("shop", "shop.parked", 12)]
    bench.now_ms += MINUTE_MS
    notifier.look()
    notifier.wait_for_sends()
    chat, (bank,) = ([each for of, sent in bench.sends.sent for each in sent.events if of == name] for name in ("chat", "bot"))
    assert {each.id for each in chat} == {"new_failure/aa", "overdue/shop", "near_retention/shop.parked/shop"}
    assert (bank.title, "shop" in bank.sentence, bank.data["teams"]) == ("New failure: bank", False, ["bank"])


def test_few_letters_are_not_told_before_they_are_many(bench: Bench) -> None:
    bench.rules = "rules: [{to: chat, at_least: 10, events: [new_failure]}]"
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa", waiting=4, parked=5, trend=(0,) * 24)
    assert bench.look(notifier) == []
    first_ms = bench.now_ms - MINUTE_MS
    bench.replica.kinds = [
        group("aa", ("shop",), waiting=4, parked=6, trend=(0,) * 24, first_ms=first_ms, last_ms=bench.now_ms)
    ]
    assert bench.look(notifier, 1_000) == [("chat", "New failure: shop")]


def test_many_at_once_are_one_message_to_people_and_one_call_each_to_programs(bench: Bench) -> None:
    bench.rules = "rules: [{to: [chat, bot], events: [new_failure, overdue]}]"
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail(*(f"{n:04x}" for n in range(12)))
    bench.replica.late = [OverdueLetters("shop", 1, NOW_MS)]
    bench.now_ms += MINUTE_MS
    notifier.look()
    notifier.wait_for_sends()
    (summary,) = [delivery.message for name, delivery in bench.sends.sent if name == "chat"]
    assert summary.title == "1 overdue, 12 new failures"
    assert summary.body.count(f"{URL}/failures/0") == 9
    assert summary.body.endswith(f"And 3 more:\n{URL}/failures")
    calls = [delivery for name, delivery in bench.sends.sent if name == "bot"]
    assert [len(each.events) for each in calls] == [1] * 13
    bench.sends.take()
    assert bench.look(notifier) == []


def test_what_comes_within_a_minute_after_a_message_is_gathered(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa")
    assert len(bench.look(notifier)) == 1
    bench.fail(*(f"b{n}" for n in range(9)))
    assert bench.look(notifier, 5_000) == []
    assert bench.look(notifier, 55_000) == [("chat", "9 new failures")]


def test_a_hold_is_told_while_it_stands(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.look(notifier)
    action = Action("retry", "ann", NOW_MS, [1], 1_814, teams=["shop"])
    held = HEAD + b"/held"
    order = Order("worker", bench.now_ms, "too few recover")
    bench.replica.control_records[0] = {HEAD: action_records.encode(action), held: action_records.encode(order)}
    bench.now_ms += MINUTE_MS
    notifier.look()
    notifier.wait_for_sends()
    ((_, delivery),) = bench.sends.sent
    assert delivery.message.title == "On hold: shop"
    assert delivery.message.body == (
        "The action “retry” on 1,814 letters of team shop is on hold (by worker): “too few recover”; 0 are done.\n"
        f"{URL}/actions/00000000000000aa"
    )


def test_what_is_overdue_is_told_again_once_it_was_over_for_ten_minutes(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.replica.late = [OverdueLetters("shop", 1, NOW_MS)]
    assert bench.look(notifier) == [("chat", "Overdue: shop")]
    bench.replica.late = []
    assert bench.look(notifier) == []
    bench.replica.late = [OverdueLetters("shop", 2, NOW_MS)]
    assert bench.look(notifier) == [], "it has not been over for long"
    bench.replica.late = []
    assert bench.look(notifier) == []
    assert bench.look(notifier, 10 * MINUTE_MS) == []
    bench.replica.late = [OverdueLetters("shop", 2, NOW_MS)]
    bench.now_ms += MINUTE_MS
    notifier.look()
    notifier.wait_for_sends()
    ((_, second),) = bench.sends.sent
    assert second.message.title == "Overdue: shop"
    assert second.events[0].call_id == f"overdue/shop/{bench.now_ms}", "programs know it from the one before"


def test_what_no_rule_chooses_is_not_looked_up_again_until_it_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.rules = "rules: [{to: chat, at_least: 10, events: [new_failure]}]"
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa", waiting=1, parked=0, trend=(0,) * 24)
    looked_up: list[str] = []
    find_group = bench.replica.find_group
    monkeypatch.setattr(bench.replica, "find_group", lambda scope, each: looked_up.append(each) or find_group(scope, each))
    for _ in range(5):
        bench.look(notifier, 5_000)
    assert looked_up == ["aa"]
    bench.look(notifier)
    assert looked_up == ["aa", "aa"]


def test_a_rule_that_is_new_tells_of_what_begins_from_then_on(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa")
    bench.rules = "rules: [{to: pager, events: [new_failure]}]"
    bench.now_ms += 1
    assert bench.look(notifier) == []
    assert len(bench.replica.told.beginnings) == 1, "what no rule is any more is forgotten"
    bench.fail("bb")
    assert bench.look(notifier) == [("pager", "New failure: shop")]


def test_parts_of_a_split_and_resolved_kinds_are_not_told(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.look(notifier)
    bench.fail("aa")
    assert len(bench.look(notifier)) == 1
    bench.fail("aa~topic=x", "aa~topic=y")
    bench.fail("bb", resolved_at_ms=bench.now_ms)
    assert bench.look(notifier) == []


def test_while_the_replica_is_built_nothing_is_told(bench: Bench) -> None:
    notifier = bench.notifier()
    bench.replica.trouble = RebuildInProgress(0.5)
    with pytest.raises(RebuildInProgress):
        bench.look(notifier)
    assert bench.sends.sent == []


@pytest.mark.parametrize("text", [
    "@channel @here <!channel> <@U012AB3CD> <!subteam^S1>", "<at>Ann</at>", "[pay here](https://evil.example/x)",
    "www.evil.example", "`rm -rf`", "<a href=\"https://evil.example\">x</a>", "a\r\nSubject: b", "\x1b[2J\x07", "\u202egnp.exe",
    "@everyone",
])  # fmt: skip
def test_what_letters_say_is_inert(bench: Bench, text: str) -> None:
    inert = make_inert(text)
    assert inert.isprintable()
    assert not any(each in inert for each in ("@", "<", ">", "](", "://", "www.", "`", "|"))
    bench.look(notifier := bench.notifier())
    bench.fail("aa", cause=text, message=text, teams=(text,))
    bench.now_ms += MINUTE_MS
    notifier.look()
    notifier.wait_for_sends()
    ((_, delivery),) = bench.sends.sent
    sentence, link = delivery.message.body.split("\n")
    assert link == f"{URL}/failures/aa"
    assert not any(each in sentence + delivery.message.title for each in ("@", "<", "](", "://", "www."))
    assert (sentence + delivery.message.title).isprintable()


def test_programs_get_the_sentence_and_all_that_it_is_made_of() -> None:
    event = Event("overdue", "overdue/shop", "Overdue: shop", "1 letter is overdue.", "/letters?q=x", {"team": "shop"})
    told = json.loads(event.encode(URL))
    assert told["type"] == "overdue"
    assert told["data"] == {
        "team": "shop", "title": "Overdue: shop", "sentence": "1 letter is overdue.", "link": f"{URL}/letters?q=x",
    }  # fmt: skip
