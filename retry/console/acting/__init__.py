"""What is done from the console: actions on letters, pauses, notes, what waits by name; and the API for all of it."""
