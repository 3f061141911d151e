"""The process that asks for what groups have committed: a configuration on its first line of input, a group on each one after.

It answers each with a line: the number of the question, the offsets as topic, partition and offset, or the code and the text of
an error. It ends with its input.
"""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any

import orjson
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from retry.kafka.asked_again import GROUP_EXPIRES_S

_writing = Lock()


def main() -> None:
    silent = logging.getLogger(__name__)
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    config: dict[str, Any] = orjson.loads(sys.stdin.buffer.readline())
    config["logger"] = silent
    admin = AdminClient(config)
    for line in sys.stdin.buffer:
        number, group = orjson.loads(line)
        try:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=GROUP_EXPIRES_S)
        except KafkaException as error:
            failed: Future[ConsumerGroupTopicPartitions] = Future()
            failed.set_exception(error)
            asked = {group: failed}
        asked[group].add_done_callback(partial(_write_offsets, number))
    # Clients would first wait for what was asked last.
    os._exit(0)


def _write_offsets(number: int, answer: Future[ConsumerGroupTopicPartitions]) -> None:
    error = answer.exception()
    if isinstance(error, KafkaException):
        line = orjson.dumps([number, [], [error.args[0].code(), error.args[0].str()]])
    else:
        places = answer.result().topic_partitions or ()
        line = orjson.dumps([number, [[place.topic, place.partition, place.offset] for place in places], None])
    with _writing:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
