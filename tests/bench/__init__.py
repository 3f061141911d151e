"""What `make bench` measures: rates, lateness, memory and restore of one worker, beside the machine's own limit.

    python -m tests.bench [--letters N] [--runs K] [--only NAME,...] [--set RETRY_...=VALUE]... [--json FILE]

Each figure has a broker in common, and topics, application id and state directory of its own. The worker is
`python -m retry worker`, as an operator starts it; letters have 500 bytes that do not compress, a key of their own and
2 headers; 4 dead-letter partitions, 4 shards; the retry topic is LogAppendTime; readers are read_committed.

| name | what is timed |
| --- | --- |
| copy | the limit: librdkafka, consume → produce, a transaction with offsets per 10,000; beside each rate |
| intake | warm worker, SIGSTOP while the topic is filled; from SIGCONT until the commit of all, and their fold |
| fold | `RocksTable.apply_records` in this process, of ready-made changelog rows |
| sweep | all letters wait for one moment T; until a reader has seen the last of them |
| drain | worker down, all letters already due; from the start of the process to the last one seen |
| lateness | 2,000 letters/s for 20 s, each due 1 to 5 s later; by the broker's append time and by time of receipt |
| memory | 5 letters for each of the other figures (1,000,000 by default), due in an hour: RSS, disk |
| restore | from the start of the process until `/health/ready`: state kept, tables wiped, all state wiped |

Ratios are to the median copy of the same run, since a machine's speed drifts. `others` is how many cores anything but
worker, broker and this program used meanwhile: a figure with more than 0.1 there should be taken again.
Every figure checks that each letter is there exactly once, byte for byte; exit code 1 says that one was not.
"""
