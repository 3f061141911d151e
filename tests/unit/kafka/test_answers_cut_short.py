"""The process that asks what groups have committed may end in the middle of an answer."""

from __future__ import annotations

import io

import pytest
from confluent_kafka import KafkaError, KafkaException

from retry.kafka.committed_offsets import _Questions


def test_an_answer_that_is_cut_short_leaves_nobody_waiting() -> None:
    questions = _Questions(io.BytesIO())
    whole, cut = questions.request_offsets("a"), questions.request_offsets("b")
    questions.read_answers([b'[1, [["topic", 0, 7]], null]\n', b'[2, [["topic", 0, '])
    assert [each.offset for each in whole.result(0).topic_partitions or ()] == [7]
    with pytest.raises(KafkaException) as ended:
        cut.result(0)
    assert ended.value.args[0].code() == KafkaError.NOT_COORDINATOR
    assert questions.has_ended
