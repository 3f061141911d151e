"""What the service tells: outcomes as records, state as metrics and health."""
