"""What the console shows, as rows of SQLite: a fold of the service's topics that can be deleted at any time."""
