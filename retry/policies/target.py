"""Where letters go, when the policy leaves a part of the name to the letter: `origin`, and templates.

A template is a topic name with parts in braces: {origin}, {group}, {dead_letters}, and {1}, {2}… for the groups of the
pattern that the dead-letter topic matched. What a header says can thus stand in the name of a topic; so a filled-in
name is checked to be one, and counts only where the allow-list has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from retry.dead_letters.failure import Failure
from retry.policies.topic_patterns import topic_fault
from retry.policies.yaml_document import suggest_word

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
        """The name for one letter; None where a part is unknown or the whole is not the name of a topic."""
        match = self.pattern.fullmatch(dead_letters) if self.pattern else None
        pieces = list(self.pieces)
        for n in range(1, len(pieces), 2):
            part = _part(pieces[n], failure, dead_letters, match)
            if part is None:
                return None
            pieces[n] = part
        name = "".join(pieces)
        return None if topic_fault(name) else name


def template(written: str | None, pattern: re.Pattern[str] | None = None) -> Template | None:
    """The template in a `retry_to`; None where it names one topic, or none.

    >>> template("{group}.retry").fill_name(Failure(consumer_group="billing"), "orders.DLT")
    'billing.retry'
    """
    if written is None or not depends(written):
        return None
    return Template(tuple(_PART.split(_ORIGIN_TEMPLATE if written == ORIGIN else written)), pattern)


def depends(written: str) -> bool:
    """Whether a `retry_to` needs a letter to say which topic it means."""
    return written == ORIGIN or "{" in written or "}" in written


def template_fault(written: str) -> str | None:
    """Return what is wrong with a template, whatever topic it stands for; None where nothing is."""
    pieces = _PART.split(written)
    for word in pieces[1::2]:
        if word not in _WORDS and not _GROUP.fullmatch(word):
            allowed = ", ".join(f"{{{each}}}" for each in _WORDS)
            return f"{{{word:.40}}} is not a part that is known; {allowed} and {{1}}, {{2}}… are{suggest_word(word, _WORDS)}"
    if not all(map(_FIXED.fullmatch, pieces[::2])):
        return f"{written!r:.60} is not a template: letters, digits, dot, underscore, dash, and parts like {{origin}}"
    return None


def groups_needed(written: str) -> int:
    """How many groups a template expects of the pattern; 0 where it names none."""
    return max((int(word) for word in _PART.split(written)[1::2] if word.isdigit()), default=0)


def _part(word: str, failure: Failure, dead_letters: str, match: re.Match[str] | None) -> str | None:
    if word == "origin":
        return failure.origin_topic
    if word == "group":
        return failure.consumer_group
    if word == "dead_letters":
        return dead_letters
    return match[int(word)] if match else None
