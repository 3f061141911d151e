"""A cluster → the dead-letter topics that were found there, and the policy file that would attach them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from retry import clock
from retry.kafka import topics as own_topics
from retry.operations.cluster import Cluster
from retry.operations.discover import look
from retry.operations.discover.found_topic import WINDOWS_MS, FoundTopic, Known, describe_topic, with_rate
from retry.operations.discover.policy_text import policy_text
from retry.operations.discover.proposal import ProposedTopic, propose_topics


class Discovery(NamedTuple):
    """The dead-letter topics of a cluster, and a policy file for them.

    Attributes:
      topics: topics of dead letters, and topics that may be, by name.
      teams: the sections of the policy file, by team.
      text: the policy file.
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
    teams = propose_topics(topics, known, own_topics.internal(cluster.settings.app_id))
    others = [topic for topic in topics if not topic.attached]
    text = policy_text(teams, others, cluster_id, now_ms, len(view.samples))
    return Discovery(topics, teams, text, view.unreadable, now_ms)


def _add_rates(cluster: Cluster, view: look.View, topics: list[FoundTopic], now_ms: int) -> list[FoundTopic]:
    """Topics with how many letters they have, how old the oldest is, and how many come in a second."""
    names = [topic.topic for topic in topics if view.counts[topic.topic].offsets]
    look.count_small_topics(cluster, view, names)
    look.note_oldest(cluster, view, names)
    since = {window_ms: look.written_since(cluster, view, names, now_ms - window_ms) for window_ms in WINDOWS_MS if names}
    timed = []
    for topic in topics:
        count = view.counts[topic.topic]
        counted = msgspec.structs.replace(
            topic, oldest_ms=view.samples[topic.topic].oldest_ms, letters=count.letters, is_letters_estimate=count.is_estimate
        )
        timed.append(with_rate(counted, {window_ms: of.get(topic.topic, 0) for window_ms, of in since.items()}, now_ms))
    return timed
