"""The one place that says what each error of a transactional producer means."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from retry.errors import CommitInDoubt, ProducerFenced, ProducerSpent, TransactionFailed

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
# Of producers, and of whatever follows a refused record until the transaction is undone: no topic and no record is at fault.
NO_RECORD_AT_FAULT = (
    KafkaError._STATE, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_ID_MAPPING, *_FENCED,
)  # fmt: skip
# A transaction that fails for one of these was not refused a record: its consumer is no member of its group any more.
OF_MEMBERS = (
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID, KafkaError.REBALANCE_IN_PROGRESS,
)  # fmt: skip


def transaction_error(error: KafkaException) -> TransactionFailed:
    """The error in our terms. What is not known to be harmless counts as a commit in doubt."""
    reason: KafkaError = error.args[0]
    if reason.code() in _FENCED:
        return ProducerFenced(str(reason))
    if reason.code() == KafkaError.INVALID_TXN_STATE:
        return ProducerSpent(str(reason))
    return CommitInDoubt(str(reason))
