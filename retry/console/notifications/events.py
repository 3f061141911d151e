"""What there is to tell at this moment, of all teams; and what of it a rule chooses, as the rule's teams may see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from retry import clock
from retry.console.acting import standing_actions
from retry.console.notifications import sentences
from retry.console.notifications.rule_file import FAILED_AGAIN, NEAR_RETENTION, NEW_FAILURE, ON_HOLD, OVERDUE, Rule
from retry.console.reading.lists import sees_action
from retry.console.reading.replica import Replica
from retry.console.reading.standing import FadingLetters, OverdueLetters
from retry.console.rows import Group
from retry.console.web.filters import exactly
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.parse import parse

# A worker that is restarted, or shares its shards out anew, is late for less.
OVERDUE_MS = 5 * 60_000
# What nobody could be told of for so long, nobody wants to hear any more.
OLDEST_MS = 7 * 86_400_000
_STANDING_EVERY_S = 30.0


class Candidate(NamedTuple):
    """Something that there may be to tell of.

    Attributes:
      id: the same each time that the same thing is found.
      at_ms: when it began; None of what is told whenever it began.
      subject: what it is about: the id of a group, an action, or letters.
      changed_ms: what a rule says of it may be otherwise only where this is.
    """

    kind: str
    id: str
    at_ms: int | None
    subject: str | ActionOverview | OverdueLetters | FadingLetters
    changed_ms: int = 0


class Event(NamedTuple):
    """One thing to tell: a title, a sentence, the path of its page in the console, and the same for programs."""

    kind: str
    id: str
    title: str
    sentence: str
    path: str
    data: Mapping[str, Any]
    episode_ms: int = 0

    @property
    def call_id(self) -> str:
        """Return the id that programs know it by: of what comes and goes another one each time."""
        return quote(f"{self.id}/{self.episode_ms}" if self.episode_ms else self.id, safe="/~")

    def encode(self, console_url: str) -> bytes:
        """Encode it for whoever is called with JSON."""
        data = {**self.data, "title": self.title, "sentence": self.sentence, "link": console_url + self.path}
        return orjson.dumps({"type": self.kind, "timestamp": clock.iso(clock.wall_ms()), "data": data})


class Happenings:
    """Finds events in the replica; every method raises RebuildInProgress while that is built.

    Args:
      list_silent_teams: those of whose failures no message of an exception is told, since nobody knows who reads a chat.
    """

    def __init__(
        self, replica: Replica, clock_ms: Callable[[], int] = clock.wall_ms,
        list_silent_teams: Callable[[], Collection[str]] = tuple,
    ) -> None:  # fmt: skip
        self._replica, self._clock_ms, self._list_silent_teams = replica, clock_ms, list_silent_teams
        self._asking, self._standing = clock.Interval(_STANDING_EVERY_S, at_once=True), list[Candidate]()
        self._episodes_ms: dict[str, int] = {}

    def list_candidates(self, since_ms: int) -> list[Candidate]:
        """List what began since a moment or stands now, the oldest first of what has a beginning."""
        first_ms = max(since_ms, self._clock_ms() - OLDEST_MS)
        new = self._replica.groups_since(first_ms)
        # Parts of a split are kinds that were there before under the name of the whole.
        found = [
            Candidate(NEW_FAILURE, f"{NEW_FAILURE}/{group.partition('~')[0]}", times.first_ms, group, times.last_ms or 0)
            for group, times in new.items()
        ]  # fmt: skip
        again = self._replica.find_reopened()
        found += [Candidate(FAILED_AGAIN, f"{FAILED_AGAIN}/{group}/{at_ms}", None, group) for group, at_ms in again.items()]
        found += self._list_holds()
        if self._asking.is_due():
            self._standing, now_ms = list(self._list_standing()), self._clock_ms()
            self._episodes_ms = {each.id: self._episodes_ms.get(each.id, now_ms) for each in self._standing}
        return sorted([*found, *self._standing], key=lambda each: each.at_ms or 0)

    def describe(self, candidate: Candidate, rule: Rule) -> Event | None:
        """Describe what a rule chooses; None where it does not, or it is gone."""
        if candidate.kind not in rule.events:
            return None
        subject = candidate.subject
        if isinstance(subject, str):
            return self._describe_group(candidate, subject, rule)
        if isinstance(subject, ActionOverview):
            return _describe_action(candidate, subject, rule)
        if (rule.teams is not None and subject.team not in rule.teams) or subject.letters < rule.at_least:
            return None
        return _describe_letters(candidate, subject)._replace(episode_ms=self._episodes_ms.get(candidate.id, 0))

    def _list_holds(self) -> Iterator[Candidate]:
        for about in standing_actions.list_recent_actions(self._replica, None):
            if about.held is not None and about.status == "held":
                yield Candidate(ON_HOLD, f"{ON_HOLD}/{about.id.hex()}/{about.held.at_ms}", None, about)

    def _list_standing(self) -> Iterator[Candidate]:
        for late in self._replica.list_overdue(self._clock_ms() - OVERDUE_MS):
            yield Candidate(OVERDUE, f"{OVERDUE}/{late.team}", None, late)
        for fading in self._replica.list_fading():
            yield Candidate(NEAR_RETENTION, f"{NEAR_RETENTION}/{fading.topic}/{fading.team}", None, fading)

    def _describe_group(self, candidate: Candidate, group_id: str, rule: Rule) -> Event | None:
        group = self._replica.find_group(rule.teams, group_id)
        if group is None or group.resolved_at_ms is not None or self._count(group, rule) < rule.at_least:
            return None
        teams = group.teams if rule.teams is None else tuple(team for team in group.teams if team in rule.teams)
        if rule.teams is not None and not teams:
            return None
        if not set(group.teams).isdisjoint(self._list_silent_teams()):
            group = replace(group, message=None)
        describe = sentences.describe_new_failure if candidate.kind == NEW_FAILURE else sentences.describe_failed_again
        data = {
            "group": group.id, "cause": group.cause, "message": group.message, "letters": group.count, "teams": list(teams),
            "first_seen": None if group.first_ms is None else clock.iso(group.first_ms),
        }  # fmt: skip
        title, path = sentences.title_of(candidate.kind, teams), f"/failures/{quote(group.id, safe='')}"
        return Event(candidate.kind, candidate.id, title, describe(group, teams), path, data)

    def _count(self, group: Group, rule: Rule) -> int:
        """Count letters that are there, or failures of 24 hours where those are more; with a filter, letters that it chooses."""
        if not rule.filter:
            return max(group.count, sum(group.trend))
        chosen = parse(f"({rule.filter}) {exactly('group', group.id)}", groups=True)
        return self._replica.list_letters(rule.teams, chosen, None, 1).count


def _describe_action(candidate: Candidate, about: ActionOverview, rule: Rule) -> Event | None:
    teams = about.action.teams
    if about.held is None or about.action.members < rule.at_least or not sees_action(rule.teams, about.action):
        return None
    data = {
        "action": about.id.hex(), "kind": about.action.kind, "teams": list(teams), "by": about.held.by,
        "reason": about.held.reason, "held": clock.iso(about.held.at_ms), "letters": about.action.members,
        "done": about.tally.done,
    }  # fmt: skip
    sentence, path = sentences.describe_hold(about, teams), f"/actions/{about.id.hex()}"
    return Event(candidate.kind, candidate.id, sentences.title_of(candidate.kind, teams), sentence, path, data)


def _describe_letters(candidate: Candidate, subject: OverdueLetters | FadingLetters) -> Event:
    data: dict[str, object] = {"team": subject.team, "letters": subject.letters}
    of_team = exactly("team", subject.team) if subject.team else "-team:*"
    if isinstance(subject, OverdueLetters):
        sentence, text = sentences.describe_overdue(subject), f"{of_team} due:<-5m"
        data["due"] = clock.iso(subject.since_ms)
    else:
        sentence, text = sentences.describe_fading(subject), f"{of_team} state:parked"
        data["topic"] = subject.topic
    title = sentences.title_of(candidate.kind, [subject.team])
    return Event(candidate.kind, candidate.id, title, sentence, f"/letters?{urlencode({'q': text})}", data)
