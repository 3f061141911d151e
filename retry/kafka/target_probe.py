"""Which destinations can be written to just now."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from retry.clock import monotonic_s

_ASK_S = 5.0
_OPEN_FOR_S = 30.0
_CLOSED_FOR_S = 5.0
_REFUSALS = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION)


class Targets:
    """Asks the cluster whether a topic is there, and remembers the answer for a while."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._known: dict[str, tuple[float, str | None]] = {}

    def closed(self, destinations: set[str]) -> dict[str, str]:
        """Those of `destinations` that cannot be written to, and why."""
        return {topic: why for topic in destinations if (why := self._refusal(topic)) is not None}

    def _refusal(self, topic: str) -> str | None:
        until_s, why = self._known.get(topic, (0.0, None))
        if monotonic_s() >= until_s:
            why = self._ask(topic)
            self._known[topic] = (monotonic_s() + (_CLOSED_FOR_S if why else _OPEN_FOR_S), why)
        return why

    def _ask(self, topic: str) -> str | None:
        answer = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_ASK_S)[topic]
        try:
            answer.result(_ASK_S)
        except TimeoutError:
            return None
        except KafkaException as error:
            known = error.args[0]
            # Anything else is said of the cluster, not of the topic: the transaction will tell.
            return f"{topic}: {known.str()}" if known.code() in _REFUSALS else None
        return None
