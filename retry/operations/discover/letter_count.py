"""How many letters lie in a topic, where only some of its offsets were read: brokers tell offsets, and not each has a letter.

Ends of transactions have offsets, and so have records of transactions that were undone, and what was compacted away.
"""

from __future__ import annotations

import msgspec


class LetterCount(msgspec.Struct):
    """Counts letters by the share of offsets that have one.

    Attributes:
      offsets: how many offsets the topic has.
      read_offsets: how many of them were read.
      read_letters: how many letters those had.
      read_bytes: how large the keys and values of these were together.
    """

    offsets: int = 0
    read_offsets: int = 0
    read_letters: int = 0
    read_bytes: int = 0

    def add_letter(self, letter_bytes: int) -> None:
        """Count a letter that was read."""
        self.read_letters += 1
        self.read_bytes += letter_bytes

    @property
    def unread_bytes(self) -> int:
        """How large the letters at the other offsets may be, if each of these has one."""
        mean = self.read_bytes / self.read_letters if self.read_letters else 0
        return round(mean * (self.offsets - self.read_offsets))

    @property
    def is_estimate(self) -> bool:
        """Whether some offsets were not read."""
        return self.read_offsets < self.offsets

    @property
    def letters(self) -> int:
        """How many letters the topic has, as far as what was read tells."""
        return self.count_in(self.offsets)

    def count_in(self, offsets: int) -> int:
        """How many letters so many of its offsets have, if they are like those that were read.

        >>> LetterCount(offsets=380, read_offsets=190, read_letters=20).letters
        40
        """
        return round(offsets * self.read_letters / self.read_offsets) if self.read_offsets else 0
