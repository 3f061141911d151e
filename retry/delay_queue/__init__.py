"""Entries that wait: their bytes, and the changelog folded into RocksDB in due order."""
