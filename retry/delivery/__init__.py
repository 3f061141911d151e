"""Ways out that are no topic."""
