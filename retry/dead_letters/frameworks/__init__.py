"""Who wrote a dead letter, and what its headers say: one table row a framework, one engine that reads the rows."""

from retry.sources.dialects.aliases import ALIASABLE, Aliases
from retry.sources.dialects.envelopes import may_be
from retry.sources.dialects.plan import KNOWN
from retry.sources.dialects.recognition import recognise, unknown

__all__ = ["ALIASABLE", "KNOWN", "Aliases", "may_be", "recognise", "unknown"]
