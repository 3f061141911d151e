"""The newest letters of a topic, counted: who wrote them, what failed, from where. Memory is bounded, payloads are not kept."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from retry.dead_letters import body_attempts, retry_headers
from retry.dead_letters.dead_letter import COPYING, LIKELY_MS, read
from retry.dead_letters.failure import UNKNOWN
from retry.dead_letters.frameworks import KNOWN
from retry.record import Headers

# Of letters that nobody knows: how many are looked at for names, how many headers of each, and how much of their values.
_STRANGE_MAX, _HEADERS_MAX, _VALUE_BYTES_MAX = 40, 64, 512
# Members of a JSON body in which consumers without headers count.
_COUNTS = ("$.retryAttempt", "$.retryCount", "$.retry_attempt", "$.retry_count", "$.attempt", "$.attempts", "$.retries")
_RETRIES, _PARKED = "retries of this service", "letters that this service parked"


class TopicSample:
    """Counts of what some letters of one topic say.

    Attributes:
      letters: how many were looked at.
      families: by framework, how many of them; `unknown` where headers tell nothing.
      origins, groups, exceptions: what letters name, and how many of them name it.
      ours: records that this service wrote, by what they are.
      pointers: how many have no payload.
      converters: how many failed where Kafka Connect converts, which no retry mends.
      copied: whether timestamps are those of the records that failed.
      newest_ms, oldest_ms: timestamps; None where none is known.
      strange: headers that no framework's row has.
      body_counts: members of JSON bodies that may count attempts, and in how many letters they do.
    """

    def __init__(self, topic: str) -> None:
        self.topic, self.letters, self.pointers, self.converters, self.copied = topic, 0, 0, 0, False
        self.families, self.origins, self.groups = Counter[str](), Counter[str](), Counter[str]()
        self.exceptions, self.ours, self.body_counts = Counter[str](), Counter[str](), Counter[str]()
        self.newest_ms: int | None = None
        self.oldest_ms: int | None = None
        self.strange: list[Headers] = []

    def count_letter(self, message: Any) -> None:
        """Count a letter by what its headers, its body and its timestamp say."""
        letter = read(message)
        failure = letter.failure
        self.letters += 1
        self.note_time(message)
        if letter.copyable() and (ours := _name_own_record(message)):
            self.ours[ours] += 1
            return
        self.families[failure.family] += 1
        self.pointers += letter.is_pointer()
        self.converters += failure.family == "kafka-connect" and (failure.stage or "").endswith("CONVERTER")
        self.copied |= failure.family in COPYING
        counted = (self.origins, failure.origin_topic), (self.groups, failure.consumer_group)
        for counter, said in (*counted, (self.exceptions, failure.cause or failure.exception)):
            if said is not None:
                counter[said] += 1
        if failure.family == UNKNOWN:
            self.body_counts.update(path for path in _COUNTS if body_attempts.count_attempts(letter.value, [path]))
        if len(self.strange) < _STRANGE_MAX and letter.copyable() and (strange := _strange(letter.original_headers)):
            self.strange.append(strange)

    def note_time(self, message: Any) -> None:
        """Note when a record was written, and nothing else of it."""
        stamp_ms = message.timestamp()[1]
        if stamp_ms >= LIKELY_MS:
            self.newest_ms = max(stamp_ms, self.newest_ms or stamp_ms)
            self.oldest_ms = min(stamp_ms, self.oldest_ms or stamp_ms)

    def count_recognised(self) -> Counter[str]:
        """Families, without what is unknown or only says that this service retried it before."""
        return Counter({family: count for family, count in self.families.items() if family not in (UNKNOWN, "own")})


def _strange(headers: Headers) -> Headers:
    """Return the headers that no framework's row has, with the beginning of each value."""
    found = ((name, value) for name, value in headers if value and name not in KNOWN)
    return [(name, value[:_VALUE_BYTES_MAX]) for name, value in islice(found, _HEADERS_MAX)]


def _name_own_record(message: Any) -> str | None:
    """Name a record that this service wrote, else None: a letter that failed again has its framework's headers behind ours."""
    headers = message.headers() or []
    if retry_headers.labels_of_retry(headers) is not None and headers[-1][0] in retry_headers.OURS:
        return _RETRIES
    return _PARKED if headers and any(name == retry_headers.PARKED_REASON for name, _ in headers[-7:]) else None
