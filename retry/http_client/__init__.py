"""HTTP calls: where they may go, how they are signed, one call with its bounds, and what its answer means."""
