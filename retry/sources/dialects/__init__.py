"""Who wrote a dead letter, and what its headers say: one table row a framework, one engine that reads the rows."""

from retry.sources.dialects.envelopes import OPENINGS
from retry.sources.dialects.recognition import ALIASABLE, KNOWN, Aliases, recognise, unknown

__all__ = ["ALIASABLE", "KNOWN", "OPENINGS", "Aliases", "recognise", "unknown"]
