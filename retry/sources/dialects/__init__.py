"""Who wrote a dead letter, and what its headers say: one table row a framework, one engine that reads the rows."""

from retry.sources.dialects.recognition import ALIASABLE, KNOWN, Aliases, recognise

__all__ = ["ALIASABLE", "KNOWN", "Aliases", "recognise"]
