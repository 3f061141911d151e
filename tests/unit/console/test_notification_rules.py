"""The file of notifications: what it may say, what is refused and where, and when quiet hours are, also when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from retry.console.notifications import rule_file
from retry.console.notifications.rule_file import EVENTS, Target, parse
from retry.errors import PolicyFileInvalid, SettingsInvalid
from retry.settings import Settings

TARGETS = "targets: {chat: {apprise: /run/secrets/chat}, bot: {webhook: /run/secrets/bot}}\n"


def at_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def test_a_rule_says_whose_events_go_where() -> None:
    found = parse(TARGETS + """
rules:
  - {to: [chat, bot], teams: [shop], events: [new_failure, failed_again], filter: 'exception:com.acme.*', at_least: 5}
  - {to: bot}
""", "n.yaml")
    assert found.targets == {"chat": Target("chat", False, Path("/run/secrets/chat")),
                             "bot": Target("bot", True, Path("/run/secrets/bot"))}  # fmt: skip
    chat, bot, every = found.rules
    assert (chat.target, chat.teams, chat.events) == ("chat", {"shop"}, {"new_failure", "failed_again"})
    assert (chat.filter, chat.at_least, chat.quiet_hours) == ("exception:com.acme.*", 5, None)
    assert (bot.target, bot.id != chat.id) == ("bot", True)
    assert (every.teams, every.events, every.at_least) == (None, frozenset(EVENTS), 1)


def test_a_rule_is_the_same_while_it_chooses_the_same() -> None:
    (first,) = parse(TARGETS + "rules: [{to: chat, teams: [a, b]}]", "n").rules
    (second,) = parse(
        TARGETS + "rules: [{to: chat, teams: [b, a], at_least: 3, quiet_hours: {from: '22:00', to: '06:00', zone: UTC}}]", "n"
    ).rules
    (other,) = parse(TARGETS + "rules: [{to: chat, teams: [a]}]", "n").rules
    assert first.id == second.id != other.id


@pytest.mark.parametrize(("text", "path", "reason"), [
    ("targets: {chat: {}}", "targets.chat", "give one of apprise and webhook"),
    ("targets: {chat: {apprise: /a, webhook: /b}}", "targets.chat", "give one of apprise and webhook"),
    ("targets: {'a/b': {apprise: /a}}", "targets.a/b", "letters, digits"),
    (TARGETS + "rules: [{to: chats}]", "rules[0].to", "there is no target chats; did you mean chat?"),
    (TARGETS + "rules: [{to: chat, event: [new_failure]}]", "rules[0].event", "did you mean events?"),
    (TARGETS + "rules: [{to: chat, events: [new]}]", "rules[0].events[0]", "invalid enum value"),
    (TARGETS + "rules: [{to: chat, filter: 'team:a'}]", "rules[0].filter", "a filter chooses among failures"),
    (TARGETS + "rules: [{to: chat, events: [new_failure], filter: 'colour:red'}]", "rules[0].filter", "colour"),
    (TARGETS + "rules: [{to: chat, events: [new_failure], filter: 'value.$.a=1'}]", "rules[0].filter", "payload"),
    (TARGETS + "rules: [{to: chat, at_least: 0}]", "rules[0].at_least", ">= 1"),
    (TARGETS + "rules: [{to: chat, quiet_hours: {from: '22:00', to: '06:00', zone: Moon}}]", "rules[0].quiet_hours.zone", "IANA"),
    (TARGETS + "rules: [{to: chat, quiet_hours: {from: 22:00, to: '06:00', zone: UTC}}]", "rules[0].quiet_hours.from", "quotes"),
    ("teams: {}", "file", "is it the right file?"),
])  # fmt: skip
def test_a_mistake_is_refused_with_its_place(text: str, path: str, reason: str) -> None:
    with pytest.raises(PolicyFileInvalid) as refused:
        parse(text, "notifications.yaml")
    assert refused.value.path == path
    assert reason in str(refused.value)


def test_a_file_that_cannot_be_used_is_a_setting_that_cannot(tmp_path: Path) -> None:
    path = tmp_path / "notifications.yaml"
    with pytest.raises(SettingsInvalid, match=r"RETRY_CONSOLE_NOTIFICATIONS: .* cannot be read"):
        rule_file.load(Settings(console_notifications=path))
    path.write_text("rules: [{to: nobody}]")
    with pytest.raises(SettingsInvalid, match=r"notifications.yaml:1: rules\[0\].to: there is no target nobody"):
        rule_file.load(Settings(console_notifications=path))
    assert rule_file.load(Settings()) is None


def test_quiet_hours_go_by_the_clock_on_the_wall_when_clocks_change() -> None:
    (rule,) = parse(TARGETS + "rules: [{to: chat, quiet_hours: {from: '22:00', to: '06:00', zone: Europe/Berlin}}]", "n").rules
    # On 28 March 2026 it is UTC+1; from the 29th, 02:00 on, UTC+2. On 25 October it goes back.
    for moment, is_quiet in (
        ("2026-03-28T20:59", False), ("2026-03-28T21:00", True), ("2026-03-29T03:59", True), ("2026-03-29T04:00", False),
        ("2026-03-29T19:59", False), ("2026-03-29T20:00", True),
        ("2026-10-24T20:00", True), ("2026-10-25T04:59", True), ("2026-10-25T05:00", False),
    ):  # fmt: skip
        assert rule.is_quiet(at_ms(moment)) == is_quiet, moment
