"""Definitions of recurring tasks: `formats` turns bytes into plain values, `definition` says what they mean, `samples` makes some."""
