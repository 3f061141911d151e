"""Dead-letter retry for Kafka. The map, in the order in which a letter travels:

    sources/    a record of a dead-letter topic → a letter; `intake.pointer_letters` gets the record that a pointer letter names
    lineages/   how often each letter was sent lately, whatever came back with it; `intake.attempts.lineage_follower` follows, `intake.attempts.attempt_counter` asks
    policies/   topic → team → plan; `backoff` says when, `worker.policy_reload` reads the file again
    decide      letter, past and plan → retry or park, where to and when; `intake.build_entry` makes the entry
    intake      a batch of letters → entries in the changelog, one transaction
    table/      the changelog folded into RocksDB, keyed by lane and due time
    gate        what may go just now: `delay_queue.control_records` (pauses), limits, `delivery.circuit_breaker`
    gather      what is due and may go, the teams in turn
    sweep       that → retry topics, and nulls for its keys, one transaction
    reschedule  waiting entries, decided `delivery.redecide` and moved, one transaction a batch
    kafka/      the one door to the brokers; telemetry/ and control/ what is told and asked; analytics/ PySpark

`intake.consumer` and `worker.shards.assignment` run intake and sweep on what this worker owns, `worker.engine` is all of it, `worker.faust_app` hosts it in Faust,
`worker.composition` puts it together. `commands/` is what operators type.
"""
