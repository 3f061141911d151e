"""Which names and patterns of topics a policy file may hold, and templates, which leave a part of the name to the letter."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from retry.dead_letters.failure import Failure
from retry.policies.yaml_document import suggest_word

# Which topic names and which patterns of topic names a policy file may hold.
#
# A pattern is read three times: by this service, by librdkafka (POSIX extended) and, with the newer group protocol, by the
# broker (RE2). So only that is allowed which means the same to all three, and only patterns that a backtracking matcher gets
# through quickly: the longest topic name has 249 characters, and the work grows with a power of that.

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOKEN = re.compile(
    r"(?P<item>\\[.-]|\[\^?[A-Za-z0-9._-]+\]|[A-Za-z0-9._-])"
    r"|(?P<repeat>[*+]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})|(?P<maybe>\?)|(?P<open>\((?!\?))|(?P<close>\))|(?P<either>\|)"
)
_EXACTLY = re.compile(r"\{[0-9]+\}")
_PATTERN_CHARS_MAX = 500
_TOPIC_CHARS_MAX = 249
# Ways to try a name, at most: three repeats and seven alternatives, about a second at the very worst, once per topic.
_WAYS_MAX = 20_000_000
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def is_of_kafka(topic: str) -> bool:
    """Whether a topic is one of those that brokers keep for themselves, like `__consumer_offsets`."""
    return topic.startswith("__")


def find_topic_fault(name: str) -> str | None:
    """Return what is wrong with the name of one topic, or None."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        return f"{name!r:.60} is not a topic name: 1 to 249 of letters, digits, dot, underscore and dash"
    return f"{name} is internal to Kafka" if is_of_kafka(name) else None


def strip_anchors(written: str) -> str:
    r"""Strip a pattern of the anchors that it has anyhow: a pattern always matches whole names.

    >>> strip_anchors(r"^payments\..*\.DLT$")
    'payments\\..*\\.DLT'
    """
    body = written.removeprefix("^")
    return body[:-1] if body.endswith("$") and not body.endswith(r"\$") else body


def find_pattern_fault(written: str) -> str | None:
    """Return what is wrong with a pattern of topic names, or None."""
    body = strip_anchors(written)
    if not 1 <= len(body) <= _PATTERN_CHARS_MAX:
        return f"has {len(body)} characters; 1 to {_PATTERN_CHARS_MAX} are allowed"
    if fault := _meaning_fault(body):
        return fault
    try:
        compiled = re.compile(body)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{written!r:.60} is not a regular expression: {error}"
    if fault := _ways_fault(body):
        return fault
    internal = next((name for name in _INTERNAL if compiled.fullmatch(name)), None)
    return f"matches {internal}, which is internal to Kafka; be more exact" if internal else None


def _meaning_fault(body: str) -> str | None:
    at, repeatable = 0, False
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None or (token.lastgroup in ("repeat", "maybe") and not repeatable):
            return (
                f"{body[at : at + 20]!r} is not a pattern that Python, librdkafka and the broker read alike;"
                r" use letters, digits, \., ., [a-z], ( | ), *, +, ? and {n,m}"
            )
        repeatable = token.lastgroup in ("item", "close")
        at = token.end()
    return None


def _ways_fault(body: str) -> str | None:
    """Count, from above, the ways in which a backtracking matcher may try the pattern."""
    repeats, ways, closed = 0, 1, _Group()
    open_groups = [_Group()]
    for token in _TOKEN.finditer(body):
        kind, here = token.lastgroup, open_groups[-1]
        if kind == "repeat" and closed.chooses:
            return "repeats a group that repeats or chooses; matching it could take for ever"
        closed = _Group()
        if kind == "open":
            open_groups.append(_Group())
        elif kind == "close":
            closed = open_groups.pop()
            ways *= closed.options
            open_groups[-1].chooses |= closed.chooses
        elif kind in ("repeat", "maybe", "either") and not _EXACTLY.fullmatch(token[0]):
            here.chooses = True
            here.options += kind == "either"
            repeats += kind == "repeat"
            ways *= 2 if kind == "maybe" else 1
    # So many ways are there to share out a whole name among the repeats.
    ways *= open_groups[0].options * math.comb(_TOPIC_CHARS_MAX + repeats, repeats)
    return "has too many repeats or choices; write several narrower patterns" if ways > _WAYS_MAX else None


@dataclass(slots=True)
class _Group:
    chooses: bool = False
    options: int = 1


# Where letters go, when the policy leaves a part of the name to the letter: `origin`, and templates.
#
# A template is a topic name with parts in braces: {origin}, {group}, {dead_letters}, and {1}, {2}… for the groups of the
# pattern that the dead-letter topic matched. What a header says can thus stand in the name of a topic; so a filled-in name is
# checked to be one, and counts only where the allow-list has it.

ORIGIN = "origin"
_ORIGIN_TEMPLATE = "{origin}"
_WORDS = ("origin", "group", "dead_letters")
_PART = re.compile(r"\{([^{}]*)\}")
_FIXED = re.compile(r"[A-Za-z0-9._-]*")
_GROUP = re.compile(r"[1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class Template:
    """A topic name with parts to fill in.

    Attributes:
      pieces: fixed text and names of parts, in turn; the fixed ones first and last, and maybe empty.
      pattern: of the dead-letter topics; None where they have one exact name.
    """

    pieces: tuple[str, ...]
    pattern: re.Pattern[str] | None = None

    def fill_name(self, failure: Failure, dead_letters: str) -> str | None:
        match = self.pattern.fullmatch(dead_letters) if self.pattern else None
        pieces = list(self.pieces)
        for n in range(1, len(pieces), 2):
            part = _part(pieces[n], failure, dead_letters, match)
            if part is None:
                return None
            pieces[n] = part
        name = "".join(pieces)
        return None if find_topic_fault(name) else name


def read_template(written: str | None, pattern: re.Pattern[str] | None = None) -> Template | None:
    """Read the template in a `retry_to`; None where it names one topic, or none.

    >>> read_template("{group}.retry").fill_name(Failure(consumer_group="billing"), "orders.DLT")
    'billing.retry'
    """
    if written is None or not needs_letter(written):
        return None
    return Template(tuple(_PART.split(_ORIGIN_TEMPLATE if written == ORIGIN else written)), pattern)


def needs_letter(written: str) -> bool:
    """Whether a `retry_to` needs a letter to say which topic it means."""
    return written == ORIGIN or "{" in written or "}" in written


def find_template_fault(written: str) -> str | None:
    """Return what is wrong with a template, whatever topic it stands for; None where nothing is."""
    pieces = _PART.split(written)
    for word in pieces[1::2]:
        if word not in _WORDS and not _GROUP.fullmatch(word):
            allowed = ", ".join(f"{{{each}}}" for each in _WORDS)
            return f"{{{word:.40}}} is not a part that is known; {allowed} and {{1}}, {{2}}… are{suggest_word(word, _WORDS)}"
    if not all(map(_FIXED.fullmatch, pieces[::2])):
        return f"{written!r:.60} is not a template: letters, digits, dot, underscore, dash, and parts like {{origin}}"
    return None


def find_highest_group(written: str) -> int:
    """Return how many groups a template expects of the pattern; 0 where the template names none."""
    return max((int(word) for word in _PART.split(written)[1::2] if word.isdigit()), default=0)


def _part(word: str, failure: Failure, dead_letters: str, match: re.Match[str] | None) -> str | None:
    if word == "origin":
        return failure.origin_topic
    if word == "group":
        return failure.consumer_group
    if word == "dead_letters":
        return dead_letters
    return match[int(word)] if match else None
