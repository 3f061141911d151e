"""Asks brokers one thing, again and again while they answer that they cannot say just now.

Just after a topic, a group or a broker came into being, or while a leader moves, brokers answer with errors that pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from retry.clock import Deadline, pause

# A question about a group that expires (`socket.timeout.ms`, a minute) before its search for the coordinator does, ends the
# process when the coordinator is found after all (librdkafka 2.16, issue 4605). So it is left to run; whoever asks waits less.
GROUP_EXPIRES_S = 180.0
_AGAIN_S = _LEAST_S = 0.1
_PASSING = frozenset({
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR, KafkaError.NOT_CONTROLLER, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD, KafkaError._WAIT_CACHE,
    KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._RETRY,
})  # fmt: skip
# Of a topic that exists, from a broker that does not know it yet; the last from the client, which finds no leader of it.
NOT_KNOWN_YET = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT)
_Answer = TypeVar("_Answer")


def ask_until_answered(ask: Callable[[float], _Answer], within_s: float, passing: Collection[int] = ()) -> _Answer:
    """Ask a broker again while it answers with errors that pass, for some seconds at most; return its answer.

    Args:
      ask: asks once, and takes no longer than the seconds that it is given.
      passing: codes of errors that pass too, by what this caller knows.

    Raises KafkaException: a refusal, or the last error that passes; TimeoutError: no answer.
    """
    deadline = Deadline(within_s)
    while True:
        try:
            return ask(max(_LEAST_S, deadline.remaining_s()))
        except KafkaException as error:
            last = error.args[0]
            if last.code() not in _PASSING and last.code() not in passing:
                raise
            if deadline.has_passed():
                late = KafkaError(last.code(), f"{last.str()}; asked again for {within_s:.0f} s")
                raise KafkaException(late) from error
        pause(min(_AGAIN_S, deadline.remaining_s()))
