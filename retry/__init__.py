"""A dead-letter retry service for Kafka. Each room does one step; a letter travels down the page:

    dead_letters/   a Kafka record -> a dead letter: the headers of two dozen frameworks -> one Failure
    policies/       the policy file -> what is to become of such a letter
    intake/         count its attempts, decide, write the entry: one transaction a batch
    delay_queue/    the bytes of an entry; the changelog folded (applied) into RocksDB, in due order
    delivery/       what is due and admitted -> retry topic, parking topic, webhook; reschedule, cancel
    worker/         one process: shards (restore, standby, rebalance), threads in Faust, supervisor
    process/        what every process stands on: start, logs, rights, policy file, certificates, and its end
    scheduling/     the other ways in: scheduled messages, recurring tasks, HTTP timers
    kafka/          the one door to librdkafka
    http_client/    calls to webhooks: where they may go, signed, bounded, and what an answer means
    http_server/    the one way to answer HTTP: for health, metrics, the scheduler, the API and the console
    telemetry/      metrics, outcomes, traces, reasons for health
    operations/     looks from outside: discover, try, inspect, explain, pause, act, verify; and sizes
    console/        the operators' pages over a replica of what waits, rests and failed
    analytics/      PySpark over outcomes, and advice on policies
    cli/            what operators type
    testing/        the broker and the table in memory, for tests of users and of our own

A stage imports none of those below it in `pyproject.toml`'s contract "A letter travels down the page", and no stage imports its
neighbour. `worker.composition` puts a worker together.
"""

# Another package has this name, too: commands look whose they got.
DISTRIBUTION = "dead-letter-retry"
