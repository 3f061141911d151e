"""Count a letter's attempts, decide, write its entry: one transaction a batch."""
