"""Tests, laid out by what they need: nothing, one real thing, or the whole service."""
