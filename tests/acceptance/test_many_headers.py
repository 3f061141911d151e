"""Records with as many headers as librdkafka reads back, and more: whole or parked by reference, never without what they had."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from retry.delay_queue.envelopes import HEADERS_MAX
from tests.acceptance.test_pointer_letters import pointing, share
from tests.conftest import Deploy, Schedulings
from tests.support.deployment import await_that
from tests.support.letters import Headers, Sender
from tests.support.reading import COMMITTED, Record, read

pytestmark = pytest.mark.check

# With our six headers 99,994 are as many as may be; three of ours can be left out.
COUNTS = (0, *(HEADERS_MAX - fewer for fewer in (10, 6, 5, 3, 2, 0)), HEADERS_MAX + 1, 150_000)
OURS = 6


def many(count: int) -> Headers:
    """Make so many headers for one letter."""
    return [("a", None)] * count


def came(bootstrap_servers: str, topics: Sequence[str], count: int = len(COUNTS)) -> list[Record]:
    """All that came, once it is so much."""
    await_that("all came", lambda: len(read(bootstrap_servers, topics, COMMITTED)) == count)
    return read(bootstrap_servers, topics, COMMITTED)


def test_letters_with_more_headers_than_can_be_read_back_are_parked_by_reference(deploy: Deploy) -> None:
    deployment = deploy({"orders": 1}, shards=2, defaults="{backoff: {kind: constant, delay: 100ms}, jitter: none}")
    sender, (topic,) = Sender(deployment.bootstrap_servers), deployment.dead_letters
    for count in COUNTS:
        sender.send(topic, b"%d" % count, b"value", many(count))
        sender.acknowledged()
    sender.finish()
    deployment.worker().start()
    records = came(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    became = {int(r.key or b"-1"): (r.value, len(r.headers), r.header("retry-parked-reason")) for r in records}
    assert became == {
        **{n: (b"value", n + OURS, "") for n in (0, HEADERS_MAX - 10, HEADERS_MAX - 6)},
        **{n: (b"value", n + 3, "") for n in (HEADERS_MAX - 5, HEADERS_MAX - 3)},
        **dict.fromkeys((HEADERS_MAX - 2, HEADERS_MAX), (None, OURS + 1, "too_large")),
        **dict.fromkeys((HEADERS_MAX + 1, 150000), (None, OURS + 1, "unreadable_headers")),
    }
    deployment.worker().terminate()


def test_pointers_to_records_with_more_headers_than_can_be_read_back_are_parked(deploy: Deploy) -> None:
    deployment, source = pointing(deploy, share=1)
    (topic,) = deployment.dead_letters
    sender = Sender(deployment.bootstrap_servers)
    for count in COUNTS:
        sender.send(source, b"%d" % count, b"value", many(count), partition=0)
    origins = sorted(sender.finish().values(), key=lambda letter: letter.offset)
    pointers = Sender(deployment.bootstrap_servers)
    for origin in origins:
        pointers.send(topic, None, None, share(source, origin.partition, origin.offset))
    pointers.finish()
    deployment.worker().start()
    records = came(deployment.bootstrap_servers, [*deployment.retry_topics(), deployment.parked])
    numbers = [COUNTS[int(r.header("retry-source").split("/")[2])] if r.key is None else int(r.key) for r in records]
    became = {n: (r.value, r.header("retry-parked-reason")) for n, r in zip(numbers, records, strict=True)}
    # What points has five headers of its own.
    assert became == {
        **dict.fromkeys((0, HEADERS_MAX - 10), (b"value", "")),
        **{n: (None, "too_large") for n in COUNTS if HEADERS_MAX - 10 < n <= HEADERS_MAX},
        **dict.fromkeys((HEADERS_MAX + 1, 150000), (None, "unreadable_headers")),
    }
    deployment.worker().terminate()


def test_schedules_with_more_headers_than_can_be_read_back_are_parked_by_reference(scheduling: Schedulings) -> None:
    place = scheduling(1)
    # A schedule asks in three headers; what is sent has three others, and its copy for the history all six.
    for count in COUNTS:
        place.schedule(f"{count}", time.time() + 1, headers=many(count))
        place.flush()
    instance = place.instance()
    records = came(place.bootstrap_servers, [place.target, place.names.parked])
    became = {int(r.key or b"-1"): (len(r.headers), r.header("retry-parked-reason")) for r in records}
    assert became == {
        **{n: (n + 3, "") for n in COUNTS if n + 6 <= HEADERS_MAX},
        # As it was, with where it lies and why it is parked.
        HEADERS_MAX - 5: (HEADERS_MAX, "too_large"),
        **{n: (2, "unreadable_headers") for n in COUNTS if n + 3 > HEADERS_MAX},
        HEADERS_MAX - 3: (2, "too_large"),
    }
    histories = came(place.bootstrap_servers, [place.history], sum(n + 6 <= HEADERS_MAX for n in COUNTS))
    assert max(len(r.headers) for r in histories) == HEADERS_MAX
    instance.terminate()
