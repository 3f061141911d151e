"""Tells teams where they are of what is new, failed again, is on hold, overdue or near its retention: once, by rules."""
