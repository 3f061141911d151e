"""HTTP calls: where they may go, how they are signed, one call, what its answer means, and hosts that fail.

`guard` vets the URL and pins the connection to the addresses that it vetted; `client` makes one call with one deadline;
`answer` says what became of it; `hosts` keeps a breaker for each host. None of them knows Kafka.
"""
