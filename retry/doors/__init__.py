"""Doors: other ways into the changelog than dead letters. Messages → changelog rows; no clock, no I/O."""
