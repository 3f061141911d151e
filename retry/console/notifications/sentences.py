"""One sentence of each event, for chats, pagers and mail: what records said in it commands nothing and links nowhere.

Names, messages and reasons come from letters and operators. Chats take `@channel`, `<!here>`, `<@U1>` or `[text](address)` for
commands, and make links of addresses. So brackets and at-signs are written with characters that look alike and mean nothing, an
address loses its colon and slashes, and what is not printable is shown as its escape. The one link of a message is the console's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from retry.console.notifications.rule_file import FAILED_AGAIN, NEAR_RETENTION, NEW_FAILURE, ON_HOLD, OVERDUE
from retry.console.reading.urgent_failures import FadingLetters, OverdueLetters
from retry.console.rows import Group
from retry.console.web.formats import count_letters
from retry.operations.act.overview import ActionOverview
from retry.printable import escape_unprintable

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
    what = f"The action “{make_inert(about.action.kind, 40)}” on {count_letters(about.action.members)}{_in_teams(teams, 'of')}"
    return f"{what} is on hold{by}{reason}; {about.tally.done:,} are done."


def describe_overdue(late: OverdueLetters) -> str:
    verb = "is" if late.letters == 1 else "are"
    since = f"the first was due at {_moment(late.since_ms)}"
    return f"{count_letters(late.letters)}{_in_teams([late.team], 'of')} {verb} overdue; {since}."


def describe_fading(fading: FadingLetters) -> str:
    where = f"parked in {make_inert(fading.topic)}"
    return f"Kafka deletes {count_letters(fading.letters)}{_in_teams([fading.team], 'of')} within a day, {where}."


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
    parts = [f"{count_letters(n)} {one if n == 1 else many}" for n, one, many in counts if n]
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
