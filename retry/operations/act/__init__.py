"""Actions on letters that wait, as operators ask for them: choose, start, follow, and tell what became of them."""
