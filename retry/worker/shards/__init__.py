"""Which shards a worker owns, and how each is restored, kept as a standby, and run."""
