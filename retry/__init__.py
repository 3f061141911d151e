"""Dead-letter retry for Kafka. The map, in the order in which a letter travels:

    sources/    a record of a dead-letter topic → a letter; `fill` gets the record that a pointer letter names
    lineages/   how often each letter was sent lately, whatever came back with it; `recent` follows, `trace` asks
    policies/   topic → team → plan; `backoff` says when, `reload` reads the file again
    decide      letter, past and plan → retry or park, where to and when; `pack` makes the entry
    intake      a batch of letters → entries in the changelog, one transaction
    table/      the changelog folded into RocksDB, keyed by lane and due time
    gate        what may go just now: `controls` (pauses), limits, `breaker`
    gather      what is due and may go, the teams in turn
    sweep       that → retry topics, and nulls for its keys, one transaction
    reschedule  waiting entries, decided `anew` and moved, one transaction a batch
    kafka/      the one door to the brokers; telemetry/ and control/ what is told and asked; analytics/ PySpark

`letters` and `shards` run intake and sweep on what this worker owns, `engine` is all of it, `worker` hosts it in Faust,
`app` puts it together. `commands/` is what operators type.
"""
