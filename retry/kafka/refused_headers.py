"""Tells records whose headers the client refuses from records that have none.

Of a record with more than `retry.delay_queue.envelopes.HEADERS_MAX` headers the Python client says what it says where there are
none (librdkafka 2.16, confluent-kafka 2.16): it would come back without its headers. The library itself tells the two apart, but
only of records that it holds. So those that show no headers are read once more, through its own interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, cimpl

from retry.clock import Deadline
from retry.kafka.client_config import Config
from retry.record import RecordLocation

_CONSUMER, _AT_ONCE = 1, 1_000
# The library waits for as many records as it is asked for, though an end or an error lies ready.
_WITHIN_S, _WAIT_MS = 10.0, 10
_METADATA_MS = 1_000
_CONFIG_OK, _NO_HEADERS = 0, KafkaError._NOENT
# Of the reader's own: the other client on the same brokers already says what there is to say, and one fetch follows another.
_DEMANDED = {
    "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0,
    "fetch.wait.max.ms": 5, "queued.min.messages": 1_000, "fetch.message.max.bytes": 256 << 10,
}  # fmt: skip


class _Record(Structure):
    _fields_ = (
        ("err", c_int), ("topic", c_void_p), ("partition", c_int32), ("payload", c_void_p), ("len", c_size_t),
        ("key", c_void_p), ("key_len", c_size_t), ("offset", c_int64), ("private", c_void_p),
    )  # fmt: skip


_RECORD = POINTER(_Record)
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "conf_new": (c_void_p,),
    "conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "poll_set_consumer": (c_int, c_void_p),
    "queue_get_consumer": (c_void_p, c_void_p),
    "queue_destroy": (None, c_void_p),
    "topic_partition_list_new": (c_void_p, c_int),
    "topic_partition_list_add": (c_void_p, c_void_p, c_char_p, c_int32),
    "topic_partition_list_set_offset": (c_int, c_void_p, c_char_p, c_int32, c_int64),
    "topic_partition_list_destroy": (None, c_void_p),
    "assign": (c_int, c_void_p, c_void_p),
    "metadata": (c_int, c_void_p, c_int, c_void_p, POINTER(c_void_p), c_int),
    "metadata_destroy": (None, c_void_p),
    "consume_batch_queue": (c_size_t, c_void_p, c_int, POINTER(_RECORD), c_size_t),
    "topic_name": (c_char_p, c_void_p),
    "message_headers": (c_int, _RECORD, POINTER(c_void_p)),
    "message_destroy": (None, _RECORD),
    "consumer_close": (c_int, c_void_p),
    "destroy": (None, c_void_p),
}


class UnreadableHeaders:
    """A record whose headers the client cannot read; asked for once more, it returns rubbish or ends the process."""

    def __init__(self, record: Message) -> None:
        self.topic, self.partition, self.offset, self.error = record.topic, record.partition, record.offset, record.error
        self.key, self.value, self.timestamp, self._bytes = record.key, record.value, record.timestamp, len(record)

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Raise SystemError, as the client does for a header name that is not UTF-8."""
        raise SystemError("headers that the client cannot read")

    def __len__(self) -> int:
        return self._bytes


class RefusedHeaders:
    """Looks once more at records that show no headers; for one thread. The client is made when it is first needed, and kept."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client: _Client | None = None

    def replace_unreadable(self, messages: list[Any]) -> list[Any]:
        """Replace records whose headers the client cannot read by `UnreadableHeaders`, in the list itself, and return it.

        Raises TimeoutError where brokers did not answer within 10 seconds: nobody knows.
        """
        doubtful = []
        for n, message in enumerate(messages):
            try:
                if message.headers() is None:
                    doubtful.append(n)
            except SystemError:
                # A name that is no UTF-8.
                messages[n] = UnreadableHeaders(message)
        refused = self._find_refused(_locate_record(messages[n]) for n in doubtful) if doubtful else ()
        for n in doubtful if refused else ():
            if _locate_record(messages[n]) in refused:
                messages[n] = UnreadableHeaders(messages[n])
        return messages

    def _find_refused(self, doubtful: Iterable[RecordLocation]) -> set[RecordLocation]:
        spans: dict[tuple[str, int], tuple[int, int]] = {}
        for topic, partition, offset in doubtful:
            first, last = spans.get((topic, partition), (offset, offset))
            spans[topic, partition] = min(first, offset), max(last, offset)
        self._client = self._client or _Client(self._config)
        return self._client.find_refused(spans)

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None


def _locate_record(message: Any) -> RecordLocation:
    return message.topic(), message.partition(), message.offset()


class _Client:
    def __init__(self, config: Config) -> None:
        self._call = _library()
        self._consumer = self._make_client({name: v for name, v in config.items() if name != "logger"} | _DEMANDED)
        self._call["poll_set_consumer"](self._consumer)
        self._queue = self._call["queue_get_consumer"](self._consumer)
        self._records = (_RECORD * _AT_ONCE)()
        self._topics = set[str]()

    def _make_client(self, config: Config) -> Any:
        conf, reason = self._call["conf_new"](), ctypes.create_string_buffer(512)
        for name, value in config.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if self._call["conf_set"](conf, name.encode(), text.encode(), reason, len(reason)) != _CONFIG_OK:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason.value.decode(errors="replace")))
        consumer = self._call["new"](_CONSUMER, conf, reason, len(reason))
        if not consumer:
            raise KafkaException(KafkaError(KafkaError._FAIL, reason.value.decode(errors="replace")))
        return consumer

    def find_refused(self, spans: Mapping[tuple[str, int], tuple[int, int]]) -> set[RecordLocation]:
        """Read partitions from a first to a last offset each, and return the places of records whose headers were refused."""
        self._assign({partition: first for partition, (first, _) in spans.items()})
        left, deadline, refused = dict(spans), Deadline(_WITHIN_S), set[RecordLocation]()
        try:
            while left:
                if deadline.has_passed():
                    raise TimeoutError(f"whether records have headers is not known: no answer for {sorted(left)[0]}")
                self._read(left, refused)
        finally:
            self._call["assign"](self._consumer, None)
        return refused

    def _read(self, left: dict[tuple[str, int], tuple[int, int]], refused: set[RecordLocation]) -> None:
        """Read some records more; `left` is where reading goes on and what is the last that is wanted."""
        names: dict[int, str] = {}
        records_max = min(_AT_ONCE, sum(last - begin + 1 for begin, last in left.values()))
        headers, destroy, of = c_void_p(), self._call["message_destroy"], self._call["message_headers"]
        count = self._call["consume_batch_queue"](self._queue, _WAIT_MS, self._records, records_max)
        for record in self._records[:count]:
            about = record.contents
            if about.err == 0 or about.err == KafkaError._PARTITION_EOF:
                topic = names.get(about.topic) or names.setdefault(about.topic, self._call["topic_name"](about.topic).decode())
                partition = topic, about.partition
                if about.err == 0 and of(record, byref(headers)) not in (0, _NO_HEADERS):
                    refused.add((*partition, about.offset))
                if partition in left:
                    left[partition] = about.offset + 1, left[partition][1]
                    # What is not there any more by now is passed, or lies before the end.
                    if about.err or about.offset >= left[partition][1]:
                        del left[partition]
            destroy(record)

    def _assign(self, starts: Mapping[tuple[str, int], int]) -> None:
        partitions = self._call["topic_partition_list_new"](len(starts))
        for (topic, partition), offset in starts.items():
            self._call["topic_partition_list_add"](partitions, topic.encode(), partition)
            self._call["topic_partition_list_set_offset"](partitions, topic.encode(), partition, offset)
        self._call["assign"](self._consumer, partitions)
        self._call["topic_partition_list_destroy"](partitions)
        self._find_leaders({topic for topic, _ in starts})

    def _find_leaders(self, topics: set[str]) -> None:
        """Have the client learn who leads the topics that it is assigned first now: by itself it asks after up to a second."""
        if topics <= self._topics:
            return
        found = c_void_p()
        # Of all topics that it knows by name, in one request. Where nobody answers, reading ends with its deadline.
        if self._call["metadata"](self._consumer, 0, None, byref(found), _METADATA_MS) == 0:
            self._topics |= topics
            self._call["metadata_destroy"](found)

    def close(self) -> None:
        self._call["queue_destroy"](self._queue)
        self._call["consumer_close"](self._consumer)
        self._call["destroy"](self._consumer)


@cache
def _library() -> Mapping[str, Callable[..., Any]]:
    """The functions of the library that the Python client is linked with."""
    library, functions = ctypes.CDLL(cimpl.__file__), {}
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return functions
