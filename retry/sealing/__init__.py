"""Encryption at rest: bytes are sealed with data keys, and these are wrapped by the keys of a file. Knows nothing of entries."""
