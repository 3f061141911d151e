"""One process of the service: shards, threads in Faust, the supervisor."""
