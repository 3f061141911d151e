"""Definitions of recurring tasks: `formats` makes plain values of bytes, `definition` says what these mean."""
