"""What there is to tell at this moment, and what of it a rule chooses, as the rule's teams may see it: a sentence of each event.

Names, messages and reasons come from letters and operators. Chats take `@channel`, `<!here>`, `<@U1>` or `[text](address)` for
commands, and make links of addresses. So brackets and at-signs are written with characters that look alike and mean nothing, an
address loses its colon and slashes, and what is not printable is shown as its escape. The one link of a message is the console's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from retry import clock
from retry.console.acting import standing_actions
from retry.console.notifications.rule_file import FAILED_AGAIN, NEAR_RETENTION, NEW_FAILURE, ON_HOLD, OVERDUE, Rule
from retry.console.reading.lists import sees_action
from retry.console.reading.replica import Replica
from retry.console.reading.urgent_failures import FadingLetters, OverdueLetters
from retry.console.rows import Group
from retry.console.web.filters import make_exact_term
from retry.console.web.formats import format_letters
from retry.operations.act.overview import ActionOverview
from retry.operations.letter_filter.parse import parse
from retry.printable import escape_unprintable

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
      changed_ms: what a rule says of it may be otherwise only where this is.
    """

    kind: str
    id: str
    at_ms: int | None
    subject: str | ActionOverview | OverdueLetters | FadingLetters
    changed_ms: int = 0


class Event(NamedTuple):
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
        describe = describe_new_failure if candidate.kind == NEW_FAILURE else describe_failed_again
        data = {
            "group": group.id, "cause": group.cause, "message": group.message, "letters": group.count, "teams": list(teams),
            "first_seen": None if group.first_ms is None else clock.iso(group.first_ms),
        }  # fmt: skip
        title, path = title_of(candidate.kind, teams), f"/failures/{quote(group.id, safe='')}"
        return Event(candidate.kind, candidate.id, title, describe(group, teams), path, data)

    def _count(self, group: Group, rule: Rule) -> int:
        """Count letters that are there, or failures of 24 hours where those are more; with a filter, letters that it chooses."""
        if not rule.filter:
            return max(group.count, sum(group.trend))
        chosen = parse(f"({rule.filter}) {make_exact_term('group', group.id)}", groups=True)
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
    sentence, path = describe_hold(about, teams), f"/actions/{about.id.hex()}"
    return Event(candidate.kind, candidate.id, title_of(candidate.kind, teams), sentence, path, data)


def _describe_letters(candidate: Candidate, subject: OverdueLetters | FadingLetters) -> Event:
    data: dict[str, object] = {"team": subject.team, "letters": subject.letters}
    of_team = make_exact_term("team", subject.team) if subject.team else "-team:*"
    if isinstance(subject, OverdueLetters):
        sentence, text = describe_overdue(subject), f"{of_team} due:<-5m"
        data["due"] = clock.iso(subject.since_ms)
    else:
        sentence, text = describe_fading(subject), f"{of_team} state:parked"
        data["topic"] = subject.topic
    title = title_of(candidate.kind, [subject.team])
    return Event(candidate.kind, candidate.id, title, sentence, f"/letters?{urlencode({'q': text})}", data)


_CHARS_MAX = 200
_NAMES_MAX = 5
# So many are a message each; more of them are one message, which has the first ten.
SINGLE_MAX, _LISTED_MAX = 5, 10
_INERT = str.maketrans({"@": "＠", "<": "‹", ">": "›", "[": "［", "]": "］", "`": "'", "|": "¦"})
TITLES = {
    NEW_FAILURE: "New failure", FAILED_AGAIN: "Failed again", ON_HOLD: "On hold", OVERDUE: "Overdue",
    NEAR_RETENTION: "Near the end of retention",
}  # fmt: skip
_COUNTED = {
    NEW_FAILURE: "new failures", FAILED_AGAIN: "failed again", ON_HOLD: "on hold", OVERDUE: "overdue",
    NEAR_RETENTION: "near the end of retention",
}  # fmt: skip


class Message(NamedTuple):
    """A message: its title, a sentence for each event that it is about, each followed by its link."""

    title: str
    body: str


def make_inert(text: str, most: int = _CHARS_MAX) -> str:
    """Return text in one line that is no mention, no link and no markup wherever it is read.

    >>> print(make_inert("<!channel> @here [a](https://evil.example)\\nnext"))
    ‹!channel› ＠here ［a］(https evil.example)\\nnext
    """
    return escape_unprintable(text, most).translate(_INERT).replace("://", " ").replace("www.", "www ")


def describe_new_failure(group: Group, teams: Collection[str]) -> str:
    since = f"; it failed first at {_moment(group.first_ms)}" if group.first_ms is not None else ""
    return f"{_name_failure(group)} is new{_in_teams(teams)}: {_count_group(group)}{since}."


def describe_failed_again(group: Group, teams: Collection[str]) -> str:
    return f"{_name_failure(group)} failed again{_in_teams(teams)} after it was resolved: {_count_group(group)}."


def describe_hold(about: ActionOverview, teams: Collection[str]) -> str:
    order = about.held
    reason = f": “{make_inert(order.reason)}”" if order and order.reason else ""
    by = f" (by {make_inert(order.by, 100)})" if order else ""
    what = f"The action “{make_inert(about.action.kind, 40)}” on {format_letters(about.action.members)}{_in_teams(teams, 'of')}"
    return f"{what} is on hold{by}{reason}; {about.tally.done:,} are done."


def describe_overdue(late: OverdueLetters) -> str:
    verb = "is" if late.letters == 1 else "are"
    since = f"the first was due at {_moment(late.since_ms)}"
    return f"{format_letters(late.letters)}{_in_teams([late.team], 'of')} {verb} overdue; {since}."


def describe_fading(fading: FadingLetters) -> str:
    where = f"parked in {make_inert(fading.topic)}"
    return f"Kafka deletes {format_letters(fading.letters)}{_in_teams([fading.team], 'of')} within a day, {where}."


def title_of(kind: str, teams: Collection[str]) -> str:
    named = _name_teams(teams)
    return f"{TITLES[kind]}: {named}" if named else TITLES[kind]


def write_summary(kinds: Sequence[str], sentences: Sequence[tuple[str, str]], console_url: str) -> Message:
    """Write one message of many events, the first ten of them one by one, each with its link."""
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    title = ", ".join(f"{count:,} {_COUNTED[kind] if count > 1 else TITLES[kind].lower()}" for kind, count in counts.items())
    lines = [f"{sentence}\n{link}" for sentence, link in sentences[:_LISTED_MAX]]
    more = len(sentences) - _LISTED_MAX
    return Message(title, "\n\n".join([*lines, *([f"And {more:,} more:\n{console_url}/failures"] if more > 0 else [])]))


def _name_failure(group: Group) -> str:
    cause = make_inert(group.cause) if group.cause else "A failure without a class"
    return f"{cause} “{make_inert(group.message)}”" if group.message else cause


def _count_group(group: Group) -> str:
    counts = [(group.waiting, "waits", "wait"), (group.parked, "is parked", "are parked")]
    parts = [f"{format_letters(n)} {one if n == 1 else many}" for n, one, many in counts if n]
    return " and ".join(parts) or "no letter of it waits any more"


def _in_teams(teams: Collection[str], word: str = "in") -> str:
    named = _name_teams(teams)
    return f" {word} team{'s' if len(teams) > 1 else ''} {named}" if named else ""


def _name_teams(teams: Collection[str]) -> str:
    names = sorted(filter(None, teams))
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(make_inert(name, 100) for name in names[:_NAMES_MAX]) + more


def _moment(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
