"""Who wrote a dead letter, and what its headers say: one table row a framework, one engine that reads the rows."""

from retry.dead_letters.frameworks.detection import ALIASABLE, KNOWN, Aliases, first_content, make_unknown_failure, recognise
from retry.dead_letters.frameworks.header_layout import HeaderLayout, Values, layout
from retry.dead_letters.frameworks.task_queues import may_be, maybe_envelopes

__all__ = [
    "ALIASABLE", "KNOWN", "Aliases", "HeaderLayout", "Values", "first_content", "layout", "make_unknown_failure", "may_be",
    "maybe_envelopes", "recognise",
]  # fmt: skip
