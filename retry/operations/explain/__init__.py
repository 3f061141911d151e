"""What became of one letter, with the evidence for it."""
