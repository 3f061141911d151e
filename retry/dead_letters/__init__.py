"""Bytes from outside: what a record on a dead-letter topic says of itself."""
