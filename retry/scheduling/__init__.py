"""The other ways in: scheduled messages, recurring tasks, HTTP timers."""
