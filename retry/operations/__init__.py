"""How operators look in from outside."""
