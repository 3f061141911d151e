"""Everything that can go wrong, and what the operator does next.

RetryError
├── SettingsInvalid        correct the environment variable that the message names, and start again
├── PolicyFileInvalid      correct the line that the message names; a running service keeps the old file
├── BrokersUnreachable     start the brokers, or correct RETRY_BOOTSTRAP_SERVERS and the security settings
│   └── BrokersRefused     correct the login, or see that the certificate of the brokers is valid and trusted
├── TopicsInvalid          run the command that the message names
├── RightMissing           have somebody grant it with the command that the message names
├── ChangelogReplaced      find out who deleted the topic, then start without what waited in it, as the message says
├── DataDirInUse           stop the other worker, or give this one a directory of its own
├── DataDirUnusable        make room, or mend what the message names, and start again
├── AddressUnusable        stop what listens there, or set another address
├── InstanceNameInUse      give every worker a RETRY_INSTANCE of its own
├── RecordUnwritten        send the request again: it is not known whether the record was written
├── UrlRefused             call another URL, or list its host or network in RETRY_WEBHOOK_ALLOW
├── LookupsBusy            nothing: the timer waits; if it waits for long, mend the machine's name servers
├── JavaUnavailable        install the Java that the message names, and set JAVA_HOME where there are several
├── JarsUnavailable        check the network, and the settings of the client that fetches them
├── BrokerNotStarted       read the broker's log, whose path the message names
├── TableUnreadable        nothing: the shard is wiped and restored from the changelog
├── EntryUnreadable        find out who else writes to the changelog; what cannot be read is passed over, or held
│   ├── EntryNewer             upgrade this worker; the shard goes on where it stopped
│   └── SealUnopened           give this process the key that the message names; what is sealed under it waits until then
│       └── EntryForeign           find out who else writes to the changelog; the entry is held, and never sent
├── Stalled                have the worker started again; its log says what hung
├── LineageUnreadable      find out who else writes to the lineage topic; the record is passed over
│   └── LineageNewer           upgrade this worker, which does not count what newer ones have sent until then
├── ReadPositionNewer      upgrade this worker; it takes in no letters until then
├── OutcomeNewer           upgrade the command
├── FilterInvalid          correct the filter at the column that the message names, as the message says
├── RebuildInProgress      wait until the console has read the topics; the message says how far it is
├── WriteNotShown          nothing: it is written, and is shown once the console has read it
├── ConsoleUnusable        start the console, or correct the address, the token or the request that the message names
├── CursorStale            go back to the first page
├── NotificationFailed     correct what the message names; what was not told is told again until it arrives
├── ActionRefused          ask for what the message names instead; nothing was done
├── MigrationStopped       do what the message names, and give the command again: what was moved stays moved
├── SchedulerEnded         read its log, and start it again
├── TaskInvalid            send a definition that is as the message asks; this one is parked
├── SchemaUnavailable      start the schema registry, or correct RETRY_REGISTRY_*; then send what was parked again
└── TransactionFailed      nothing: the batch is processed again
    ├── TransactionAborted     nothing: the broker undid it, and nothing was written
    │   └── TransactionSlow        raise the quota of the service's clients, or set RETRY_BATCH_BYTES lower
    ├── CommitInDoubt          nothing: the producer is replaced, and the changelog says what was written
    ├── ProducerSpent          nothing: this worker replaces the producer at once
    └── ProducerFenced         nothing: another worker has taken over the shard
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
    """None of the brokers answered."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no broker answered at {address} ({reason}); is it RETRY_BOOTSTRAP_SERVERS, or RETRY_KAFKA_*?")
        self.address, self.reason = address, reason


class BrokersRefused(BrokersUnreachable):
    """A broker was reached that does not let this user in, or is none that is trusted."""

    def __init__(self, address: str, reason: str) -> None:
        RetryError.__init__(self, f"the brokers at {address} were reached, but {reason}")
        self.address, self.reason = address, reason


class TopicsInvalid(RetryError):
    """A topic of the service is missing or has settings under which letters could be lost."""

    def __init__(self, findings: list[str], mend: str) -> None:
        super().__init__("; ".join(findings) + f". To mend it: {mend}")
        self.findings, self.mend = findings, mend


class RightMissing(RetryError):
    """The user of this process may not do what is needed."""

    def __init__(self, right: str, command: str) -> None:
        super().__init__(f"no right to {right}; grant it with: {command} (retry acls lists all that are needed)")


class ChangelogReplaced(RetryError):
    """The changelog is not the topic that this worker's letters and tables belong to."""

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
    """The disk of the tables cannot be read or written; the changelog has all that they hold."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}; make room or mend it, and start again: nothing is lost")
        self.path, self.reason = path, reason


class AddressUnusable(RetryError):
    """The service cannot listen on an address."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port} ({reason}); stop what does, or set another address: RETRY_HTTP_ADDR, "
            "RETRY_API_ADDR or RETRY_CONSOLE_ADDR, of a scheduler SERVER_ADDR or METRICS_ADDR"
        )
        self.host, self.port, self.reason = host, port, reason


class InstanceNameInUse(RetryError):
    """Another worker uses the same instance name in the consumer groups."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} is also the name of another worker ({reason}); set RETRY_INSTANCE to another name")
        self.name, self.reason = name, reason


class RecordUnwritten(RetryError):
    """A record was not acknowledged in time."""


class UrlRefused(RetryError):
    """A timer's URL may not be called."""


class LookupsBusy(RetryError):
    """A team has as many lookups of host names in flight as it may have."""


class JavaUnavailable(RetryError):
    """There is no Java that the local broker or Spark can run on."""


class JarsUnavailable(RetryError):
    """The jars of the local broker or of Spark's Kafka source could not be fetched whole."""


class BrokerNotStarted(RetryError):
    """The local broker did not start."""


class TableUnreadable(RetryError):
    """The local table is corrupt, foreign or too old to be trusted."""


class EntryUnreadable(RetryError):
    """A changelog record is not an entry that this version can read."""


class EntryNewer(EntryUnreadable):
    """A changelog record was written by a newer version of this service."""


class SealUnopened(EntryUnreadable):
    """Something is sealed under a key that this process does not have, or was changed since."""

    def __init__(self, key_id: str, reason: str) -> None:
        super().__init__(reason)
        self.key_id = key_id


class EntryForeign(SealUnopened):
    """No entry lies under the key of one: no version of this service wrote it, and no key will ever open it."""

    KEY_ID = "foreign"

    def __init__(self, reason: str) -> None:
        super().__init__(self.KEY_ID, reason)


class Stalled(RetryError):
    """A part of the worker stood still although it had work."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} has stood still for {seconds:.0f} s although it had work; start the worker again")
        self.what, self.seconds = what, seconds


class LineageUnreadable(RetryError):
    """A record of the lineage topic is not one that this version can read."""


class LineageNewer(LineageUnreadable):
    """A record of the lineage topic was written by a newer version of this service."""


class ReadPositionNewer(RetryError):
    """A record of the topic of read positions was written by a newer version of this service."""


class OutcomeNewer(RetryError):
    """An outcome was written by a newer version of this service."""


class FilterInvalid(RetryError):
    """The text that was typed to choose letters is no filter."""

    def __init__(self, column: int, reason: str) -> None:
        super().__init__(f"filter, column {column}: {reason}")
        self.column, self.reason = column, reason


class RebuildInProgress(RetryError):
    """The console's replica is being built, and shows nothing until it is."""

    def __init__(self, progress: float) -> None:
        super().__init__(f"the topics are being read, {progress:.0%} so far; pages are shown when that is done")
        self.progress = progress


class WriteNotShown(RetryError):
    """Something that the console wrote is done, and the console has not read it yet: what it shows next may be of before."""

    def __init__(self) -> None:
        super().__init__("it is done, and this console does not show it yet; look again in some seconds, and do not do it again")


class ConsoleUnusable(RetryError):
    """The console did not answer a program, or refused what it asked."""


class CursorStale(RetryError):
    """A page goes on behind a row that this list does not have."""

    def __init__(self) -> None:
        super().__init__("this page belongs to another list, or to one of before a restart; go back to the first page")


class NotificationFailed(RetryError):
    """A message to a target of notifications is not known to have arrived."""


class ActionRefused(RetryError):
    """An action on letters cannot be started, or ordered, as it was asked for."""


class MigrationStopped(RetryError):
    """Records that wait in another service cannot be moved, or not all of them could."""


class SchedulerEnded(RetryError):
    """A scheduler that a program runs beside itself did not start, and its log says why."""


class TaskInvalid(RetryError):
    """A record is not a definition of a task, or not one that the policy file allows."""

    def __init__(self, reason: str, fault: str) -> None:
        super().__init__(fault)
        self.reason = reason


class SchemaUnavailable(RetryError):
    """The schema registry does not have a schema, or gave no answer."""


class TransactionFailed(RetryError):
    """A transaction did not commit."""


class TransactionAborted(TransactionFailed):
    """The transaction was aborted, and no read_committed reader sees any of it."""


class TransactionSlow(TransactionAborted):
    """Not all records of a transaction arrived in the time that it has, though some did."""


class CommitInDoubt(TransactionFailed):
    """The commit was sent, and no answer came."""


class ProducerSpent(TransactionFailed):
    """The client cannot go on with this producer, although no other worker has taken over."""


class ProducerFenced(TransactionFailed):
    """Another process has opened a producer with the same transactional.id."""
