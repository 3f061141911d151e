"""A proposal → the policy file, with what was seen as comments, and with questions where nobody but a person can know.

Names of groups, headers and exceptions come from records, so each is shown as `retry.printable` does, or quoted.
"""

from __future__ import annotations

import glob
import json
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from retry import clock
from retry.clock import iso
from retry.kafka import topics as own_topics
from retry.operations.cluster import Cluster
from retry.operations.discover import look
from retry.operations.discover.found_topic import WINDOWS_MS, FoundTopic, Known, add_rate, describe_topic
from retry.operations.discover.proposal import ProposedTopic, propose_topics
from retry.printable import escape_unprintable

# What `retry.policies.policy_file` reads at most.
_BYTES_MAX = 1 << 20
_COLUMNS, _SHOWN, _SHOWN_CHARS = 118, 3, 120
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
# Words that YAML reads as something else than text.
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
# What holds where the file says nothing; written down, so that it can be changed.
_DEFAULTS = """\
defaults:
  backoff: {kind: exponential, delay: 10s, factor: 2, max_delay: 1h}
  max_attempts: 8       # then a letter is parked
  max_age: 3d           # and when its first failure was so long ago
"""


def write_policy_text(
    teams: Mapping[str, Sequence[ProposedTopic]], others: Iterable[FoundTopic], cluster_id: str, now_ms: int, looked_at: int
) -> str:
    """Write the policy file; `others` were found and are not attached."""
    head = [
        f"Made by retry discover at {iso(now_ms)} of {looked_at} topics of cluster {cluster_id}.",
        "Lines with a question mark ask what no topic can tell: answer them first.",
        "Then: retry policies check FILE, and retry try --file FILE, which says what it would make of the newest letters.",
        "A team is the first word of its topics' names. Nothing was changed on the brokers.",
    ]
    whole = _render_file(teams, others, head, now_ms, facts=True)
    # Questions stay, whatever else has to go.
    return whole if len(whole.encode()) <= _BYTES_MAX else _render_file(teams, others, head, now_ms, facts=False)


def _render_file(
    teams: Mapping[str, Sequence[ProposedTopic]], others: Iterable[FoundTopic], head: list[str], now_ms: int, *, facts: bool
) -> str:
    lines = [line for each in head for line in _comment(each)]
    lines += ["", *_DEFAULTS.splitlines(), "", "teams:" if teams else "teams: {}"]
    for team, topics in teams.items():
        lines += [f"  {_scalar(team)}:", "    topics:"]
        for topic in topics:
            lines += _section(topic, now_ms, facts=facts)
    if left := [line for other in others for line in _comment(f"{other.topic}: {other.why}")]:
        lines += ["", *_comment("Not attached:"), *left]
    return "\n".join(lines) + "\n"


def facts_of(topic: FoundTopic, now_ms: int) -> list[str]:
    """Describe what was seen of a topic, in sentences without a full stop."""
    old = [f"{word} {_ago(now_ms - at)} ago" for word, at in (("newest", topic.newest_ms), ("oldest", topic.oldest_ms)) if at]
    rate = [f"{topic.per_second:.3g} a second in the last {topic.window}"] if topic.per_second is not None else []
    when = "; ".join(old + rate) + (" (times of the records that failed)" if topic.copied_times and old else "")
    letters = ("about " if topic.is_letters_estimate else "") + _count(topic.letters, "letter")
    facts = [f"{letters} in {_count(topic.partitions, 'partition')}" + (f", {when}" if when else "")]
    if topic.sampled:
        by = f", group {_format_counts(topic.groups)}" if topic.groups else ""
        facts.append(f"written by {_format_counts(topic.families)} of {topic.sampled} looked at{by}")
    if topic.exceptions:
        facts.append(f"failed: {_format_counts(topic.exceptions)}")
    if topic.converters:
        facts.append(f"{topic.converters} could not be converted")
    if topic.pointers:
        facts.append(f"{topic.pointers} have no payload and only point to their record")
    return facts


def _section(topic: ProposedTopic, now_ms: int, *, facts: bool) -> Iterator[str]:
    found = topic.found
    for fact in facts_of(found, now_ms) if facts else ():
        yield from _comment(fact, 6)
    for question in topic.questions:
        yield from _comment(f"? {question}", 6)
    yield f"      - dead_letters: {_scalar(found.topic)}"
    yield f"        retry_to: {_scalar(topic.retry_to)}" + ("       # create it" if topic.create else "")
    if topic.allowed_targets:
        yield f"        allowed_targets: {_list(topic.allowed_targets)}"
    if topic.origins:
        yield f"        origins: {_list(topic.origins)}"
    if topic.group:
        yield f"        group: {_scalar(topic.group)}"
    if found.aliases:
        yield "        aliases: {" + ", ".join(f"{field}: [{_scalar(name)}]" for field, name in found.aliases.items()) + "}"
    yield from _rules(topic)


def _rules(topic: ProposedTopic) -> Iterator[str]:
    """Write a rule for each kind of failure that no retry mends."""
    conditions = ["stage: '*CONVERTER'"] if topic.found.converters else []
    conditions += [f"exception: {_list(map(glob.escape, topic.lasting))}"] if topic.lasting else []
    if conditions:
        yield "        rules:"
    for condition in conditions:
        yield f"          - {{{condition}, park: true}}"


def _comment(text: str, indent: int = 0) -> Iterator[str]:
    begin = " " * indent + "# "
    shown = escape_unprintable(text)
    yield from textwrap.wrap(shown, _COLUMNS, initial_indent=begin, subsequent_indent=begin + "  " * text.startswith("?"),
                             break_on_hyphens=False)  # fmt: skip


def _scalar(text: str) -> str:
    """Return a text as a YAML scalar, quoted unless it is plainly read as text."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_scalar, texts))}]"


def _format_counts(counts: Mapping[str, int]) -> str:
    shown = [f"{escape_unprintable(name, _SHOWN_CHARS)} {count}" for name, count in list(counts.items())[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _ago(age_ms: int) -> str:
    """Format a length of time in one unit, rounded down."""
    unit, unit_ms = next((each for each in _UNITS if age_ms >= 2 * each[1]), _UNITS[-1])
    return f"{max(0, age_ms) // unit_ms}{unit}"


# A cluster → the dead-letter topics that were found there, and the policy file that would attach them.

class Discovery(NamedTuple):
    """The topics of a cluster that have dead letters, or may, and a policy file for them, by team and as text.

    Attributes:
      unreadable: topics that look like dead letters by name and may not be read.
    """

    topics: list[FoundTopic]
    teams: dict[str, list[ProposedTopic]]
    text: str
    unreadable: list[str]
    now_ms: int


def discover(cluster: Cluster, cluster_id: str, globs: Collection[str], newest: int, say: look.Say) -> Discovery:
    """Look at the topics whose names match any of `globs`; the arguments are those of `look.sample_topics`."""
    now_ms = clock.wall_ms()
    view = look.sample_topics(cluster, globs, newest, say)
    known = Known(view.topics, view.readers, view.groups)
    judged = [describe_topic(sample, known) for sample in view.samples.values()]
    topics = _add_rates(cluster, view, [topic for topic in judged if topic], now_ms)
    teams = propose_topics(topics, known, own_topics.list_internal_topics(cluster.settings.app_id))
    others = [topic for topic in topics if not topic.attached]
    text = write_policy_text(teams, others, cluster_id, now_ms, len(view.samples))
    return Discovery(topics, teams, text, view.unreadable, now_ms)


def _add_rates(cluster: Cluster, view: look.View, topics: list[FoundTopic], now_ms: int) -> list[FoundTopic]:
    """Add to topics how many letters they have, how old the oldest is, and how many come in a second."""
    names = [topic.topic for topic in topics if view.counts[topic.topic].offsets]
    look.read_small_topics(cluster, view, names)
    look.note_oldest(cluster, view, names)
    since = {
        window_ms: look.estimate_written_since(cluster, view, names, now_ms - window_ms) for window_ms in WINDOWS_MS if names
    }
    timed = []
    for topic in topics:
        count = view.counts[topic.topic]
        counted = msgspec.structs.replace(
            topic, oldest_ms=view.samples[topic.topic].oldest_ms, letters=count.letters, is_letters_estimate=count.is_estimate
        )
        timed.append(add_rate(counted, {window_ms: of.get(topic.topic, 0) for window_ms, of in since.items()}, now_ms))
    return timed
