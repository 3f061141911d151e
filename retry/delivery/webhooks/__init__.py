"""HTTP calls: where they may go, how they are signed, one call, what its answer means, and hosts that fail.

`ssrf_guard` vets the URL and pins the connection to the addresses that it vetted; `http_client` makes one call with one deadline;
`response` says what became of it; `host_circuit_breaker` keeps a breaker for each host. None of them knows Kafka.
"""
