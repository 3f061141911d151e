"""What waits in another retry service or scheduler → this one, each record once, whatever is killed."""
