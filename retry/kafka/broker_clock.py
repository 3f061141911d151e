"""What time it is for the brokers, as the changelog has it."""

from __future__ import annotations

from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from retry.kafka import client_config
from retry.kafka.client_config import Config
from retry.kafka.flush import flush

_ANSWER_S = 4.0
# The null of a control that nobody puts: every fold passes it over.
_KEY = b"\x10clock"


class BrokerClock:
    """Writes a null to the changelog, since a broker tells its time only where it appends something.

    Args:
      config: of a producer without transactions.
      topic: has the broker's time on every record.
    """

    def __init__(self, config: Config, topic: str) -> None:
        self._config, self._topic = config, topic
        self._producer: Producer | None = None

    def now_ms(self) -> int:
        """Write a record, and return the time that a broker gave it, in milliseconds since 1970.

        Raises:
          KafkaException, TimeoutError: no broker took the record within 4 s.
        """
        self._producer = self._producer or client_config.producer(self._config)
        timestamp_ms: Future[int] = Future()

        def note_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                timestamp_ms.set_result(message.timestamp()[1])
            else:
                timestamp_ms.set_exception(KafkaException(error))

        self._producer.produce(self._topic, None, _KEY, 0, note_delivery)
        flush(self._producer, _ANSWER_S)
        return timestamp_ms.result(0)
