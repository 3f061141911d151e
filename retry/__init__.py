"""Dead-letter retry for Kafka. The map, in the order in which a letter travels:

    sources/    a record of a dead-letter topic → a letter
    policies/   topic → team → policy; `backoff` says when
    lineages/   how often each letter was sent lately, whatever came back with it
    intake      a batch of letters → entries in the changelog, one transaction
    table/      the changelog folded into RocksDB, keyed by due time
    sweep       due entries → retry topics, and nulls for their keys, one transaction
    kafka/      the one door to the brokers; telemetry/ and control/ what is told and asked; analytics/ PySpark

`letters` and `shards` run intake and sweep on what this worker owns, `engine` is all of it, `worker` hosts it in Faust,
`app` puts it together.
"""
