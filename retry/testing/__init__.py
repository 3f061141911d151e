"""The broker and the table in memory, for tests of users and our own."""
