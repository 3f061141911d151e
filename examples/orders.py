"""A consumer of orders that fails on purpose, as a team would write it: `python -m examples.orders --topic orders`.

It reads `<topic>` and `<topic>.retry`, writes what it could process to `<topic>.processed` and what it could not to
`<topic>.DLT`: the same key, value and headers, those that the service gave included, and what went wrong.
"""

from __future__ import annotations

import signal

import click
from confluent_kafka import Consumer, KafkaException, Message, Producer

FOR_EVER = 1_000_000
# How orders fail: the first row counts whose number is larger than the last two digits of the id.
_FATES = ((6, "GatewayTimeout", 1), (10, "GatewayTimeout", 3), (12, "GatewayTimeout", FOR_EVER))
_VALIDATION_BELOW = 15
_OWN_HEADERS = ("exception-class", "failure-reason", "failure-count")


class GatewayTimeout(Exception):
    """The payment gateway did not answer; it may later."""


class ValidationException(Exception):
    """The order is wrong, and will be tomorrow."""


def failures(order_id: str) -> tuple[str, int]:
    """How an order fails, and how many times before it succeeds: 85 of 100 never do.

    >>> failures("order-000142"), failures("order-000103"), failures("order-000108"), failures("order-000114")
    (('', 0), ('GatewayTimeout', 1), ('GatewayTimeout', 3), ('ValidationException', 1000000))
    """
    digits = int(order_id[-2:])
    failure = next(((name, times) for below, name, times in _FATES if digits < below), None)
    return failure or (("ValidationException", FOR_EVER) if digits < _VALIDATION_BELOW else ("", 0))


def process(order_id: str, retries_made: int, is_mended: bool = False) -> None:
    """Do what orders are for, or raise; the gateway answers where that is mended."""
    kind, times = failures(order_id)
    if is_mended and kind == "GatewayTimeout":
        return
    if retries_made < times and kind == "ValidationException":
        raise ValidationException(f"{order_id} has no address")
    if retries_made < times:
        raise GatewayTimeout(f"no answer for {order_id} within 200 ms")


def retries_made(message: Message) -> int:
    """Which retry a record is; 0 for one that was never dead-lettered."""
    return int(dict(message.headers() or []).get("retry-attempt") or 0)


def handle(message: Message, topic: str, producer: Producer, is_mended: bool = False) -> None:
    """Process one record, or dead-letter it."""
    headers, key, value = message.headers() or [], message.key(), message.value()
    made = retries_made(message)
    try:
        process((key or b"").decode(), made, is_mended)
    except (GatewayTimeout, ValidationException) as error:
        values = (f"orders.{type(error).__name__}", str(error), str(made + 1))
        other_headers = [header for header in headers if header[0] not in _OWN_HEADERS]
        failure_headers = [(name, text.encode()) for name, text in zip(_OWN_HEADERS, values, strict=True)]
        producer.produce(f"{topic}.DLT", value, key, headers=[*other_headers, *failure_headers])
    else:
        producer.produce(f"{topic}.processed", value, key, headers=[("retry-attempt", b"%d" % made)])


@click.command()
@click.option("--topic", required=True)
@click.option("--bootstrap-servers", default="127.0.0.1:9092", show_default=True)
def main(topic: str, bootstrap_servers: str) -> None:
    """Consume until SIGTERM; from SIGUSR1 on the gateway answers."""
    # read_committed: the service writes retries in transactions, and those that it undid never happened.
    reading = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"{topic}-consumer", **reading})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    running, mended = [True], list[bool]()
    signal.signal(signal.SIGTERM, lambda *_: running.clear())
    signal.signal(signal.SIGUSR1, lambda *_: mended.append(True))
    consumer.subscribe([topic, f"{topic}.retry"])
    while running:
        messages = consumer.consume(500, 0.1)
        for message in messages:
            if error := message.error():
                raise KafkaException(error)
            handle(message, topic, producer, bool(mended))
        # First what came of the records, then that they are done: a crash between the two does them again.
        if producer.flush(10):
            raise SystemExit("the broker did not take the results in 10 seconds")
        if messages:
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
