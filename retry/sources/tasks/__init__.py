"""Definitions of recurring tasks: `formats` makes plain values of bytes, `definition` says what they mean, `samples` makes some."""
