"""Everything that can go wrong, and what the operator does next.

RetryError
├── SettingsInvalid        correct the named environment variable and start again
├── PolicyFileInvalid      correct the named line; a running service keeps the old file
├── BrokersUnreachable     start the brokers, or correct RETRY_BOOTSTRAP_SERVERS and the security settings
├── TopicsInvalid          run the command that the message names
├── ChangelogReplaced      find out who deleted the topic; then go on without what waited in it, as the message says
├── DataDirInUse           stop the other worker, or give this one a directory of its own
├── DataDirUnusable        make room, or mend what the message names, and start again
├── InstanceNameInUse      give every worker a RETRY_INSTANCE of its own
├── RecordUnwritten        ask again: whether it was taken in is not known
├── UrlRefused             call another URL, or list its host or network in RETRY_WEBHOOK_ALLOW
├── JarsUnavailable        look at the network and at the registry's client settings
├── BrokerNotStarted       read the broker's log, whose path the message names
├── TableUnreadable        nothing: the shard is wiped and restored from the changelog
├── EntryUnreadable        find who else writes to the changelog
│   └── EntryNewer             upgrade this worker; the shard goes on where it stopped
├── Stalled                nothing: the worker ends to be started again; what hung stands in its log
├── LineageUnreadable      find who else writes to the lineage topic
│   └── LineageNewer           upgrade this worker; it takes in no letters until then
├── OutcomeNewer           upgrade the command
├── SchedulerEnded         read its log, and start it again
├── TaskInvalid            send a definition as the message says; this one is parked
├── SchemaUnavailable      start the schema registry, or correct RETRY_REGISTRY_*; then send what was parked again
└── TransactionFailed      nothing: the batch is read or swept again
    ├── TransactionAborted     the broker undid it; nothing was written
    ├── CommitInDoubt          nobody knows yet; the producer is replaced and the changelog read again
    └── ProducerFenced         another worker took over; this one lets go
"""

from __future__ import annotations


class RetryError(Exception):
    """Something that the service names and an operator can act on."""


class SettingsInvalid(RetryError):
    """A setting cannot be used as it is."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason


class PolicyFileInvalid(RetryError):
    """The policy file cannot be used as it is."""

    def __init__(self, file: str, line: int, path: str, reason: str) -> None:
        super().__init__(f"{file}:{line}: {path}: {reason}")
        self.file, self.line, self.path, self.reason = file, line, path, reason


class BrokersUnreachable(RetryError):
    """No broker answered."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"no broker answered at {address} ({reason}); is it RETRY_BOOTSTRAP_SERVERS, or RETRY_KAFKA_*?"
        )
        self.address, self.reason = address, reason


class TopicsInvalid(RetryError):
    """A topic of the service is missing or has settings under which letters could be lost."""

    def __init__(self, findings: list[str], mend: str) -> None:
        super().__init__("; ".join(findings) + f". To mend it: {mend}")
        self.findings, self.mend = findings, mend


class ChangelogReplaced(RetryError):
    """The changelog is another topic than the one that was folded, or that letters were taken in to."""

    def __init__(self, topic: str, was: str, now: str) -> None:
        super().__init__(
            f"changelog identity changed: {was}, but of {topic} {now}: somebody deleted it, and what waited there is gone. "
            "To go on without it, start each worker once with: retry worker --adopt-empty-changelog"
        )
        self.topic = topic


class DataDirInUse(RetryError):
    """Another process holds the data directory."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(f"{path} is in use by process {owner}; stop it, or set RETRY_DATA_DIR to another directory")
        self.path, self.owner = path, owner


class DataDirUnusable(RetryError):
    """The disk under a table does not take or give what it should; the changelog has all of it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}; make room or mend it, and start again: nothing is lost")
        self.path, self.reason = path, reason


class InstanceNameInUse(RetryError):
    """Another process joins the groups under this worker's name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is also the name of another worker ({reason}); set RETRY_INSTANCE to another name")
        self.name, self.reason = name, reason


class RecordUnwritten(RetryError):
    """A record was not acknowledged in time."""


class UrlRefused(RetryError):
    """A URL may not be called."""


class JarsUnavailable(RetryError):
    """The jars of the local broker or of Spark's Kafka source could not be fetched whole."""


class BrokerNotStarted(RetryError):
    """The local broker did not come up."""


class TableUnreadable(RetryError):
    """The local table is corrupt, foreign or too old to be trusted."""


class EntryUnreadable(RetryError):
    """A changelog record is not an entry that this version can read."""


class EntryNewer(EntryUnreadable):
    """A changelog record was written by a newer version of this service."""


class Stalled(RetryError):
    """A part of the worker stood still though there was work before it."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} has stood still for {seconds:.0f} s with work before it; start the worker again")
        self.what, self.seconds = what, seconds


class LineageUnreadable(RetryError):
    """A record of the lineage topic is not one that this version can read."""


class LineageNewer(LineageUnreadable):
    """A record of the lineage topic was written by a newer version of this service."""


class OutcomeNewer(RetryError):
    """An outcome was written by a newer version of this service."""


class SchedulerEnded(RetryError):
    """A scheduler that a program runs beside itself did not come to work; its log says why."""


class TaskInvalid(RetryError):
    """A record is no definition of a task, or of one that is not allowed."""

    def __init__(self, reason: str, fault: str) -> None:
        super().__init__(fault)
        self.reason = reason


class SchemaUnavailable(RetryError):
    """The schema registry does not have a schema, or gave no answer."""


class TransactionFailed(RetryError):
    """A transaction did not come to its end as meant."""


class TransactionAborted(TransactionFailed):
    """The transaction was undone; nothing of it is visible to a read_committed reader."""


class CommitInDoubt(TransactionFailed):
    """The commit was sent and no answer came."""


class ProducerFenced(TransactionFailed):
    """Another process opened a producer with the same transactional.id."""
