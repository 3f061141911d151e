"""What is wrong with a policy, and where in it."""

from __future__ import annotations


class PolicyInvalid(ValueError):
    """A policy cannot be used as it is written; `path` is where in the mapping, like "backoff.delay", empty for all of it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason

    def with_prefix(self, prefix: str) -> PolicyInvalid:
        """Return this error as one of the mapping around: `prefix` is put in front of its path.

        >>> PolicyInvalid("delay", "is missing").with_prefix("backoff").path
        'backoff.delay'
        """
        return PolicyInvalid(f"{prefix}.{self.path}" if self.path else prefix, self.reason)


def quote_value(value: object) -> str:
    """Quote a value as messages show it: short, whatever it is.

    >>> quote_value("5"), quote_value(None), quote_value(10**400)
    ("'5'", 'nothing', 'a number that large')
    """
    # Python refuses to write out integers of many thousand digits.
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number that large"
    return "nothing" if value is None else repr(value)[:60]
