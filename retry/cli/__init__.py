"""The commands of the console script `retry`, a module each."""
