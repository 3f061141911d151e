"""What was seen of a topic → whether dead letters lie there, who writes them, how fast, how old. Pure.

| found by | where | attached |
| --- | --- | --- |
| `name and letters` | the name says so, and so do its letters | yes |
| `name` | the name says so; letters tell nothing, or there are none | yes |
| `letters` | letters of a framework lie in a topic of any other name | where no group reads it; else it is asked about |

Retry topics are not attached: whoever reads them retries already. Neither is what this service wrote itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

import msgspec

from backoff import duration_text
from retry.dead_letters import dead_letter, retry_headers
from retry.dead_letters.dead_letter import COPYING, LIKELY_MS, read
from retry.dead_letters.failure import UNKNOWN
from retry.dead_letters.frameworks import KNOWN
from retry.operations.discover import topic_words
from retry.record import Headers

# The newest letters of a topic, counted: who wrote them, what failed, from where. Memory is bounded, payloads are not kept.

# Of letters that nobody knows: how many are looked at for names, how many headers of each, and how much of their values.
_STRANGE_MAX, _HEADERS_MAX, _VALUE_BYTES_MAX = 40, 64, 512
# Members of a JSON body in which consumers without headers count.
_COUNTS = ("$.retryAttempt", "$.retryCount", "$.retry_attempt", "$.retry_count", "$.attempt", "$.attempts", "$.retries")
_RETRIES, _PARKED = "retries of this service", "letters that this service parked"


class TopicSample:
    """Counts of what some letters of one topic say.

    Attributes:
      families: by framework, how many letters; `unknown` where headers tell nothing.
      ours: records that this service wrote, by what they are.
      pointers: how many have no payload.
      converters: how many failed where Kafka Connect converts, which no retry mends.
      copied: whether timestamps are those of the records that failed.
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
            self.body_counts.update(path for path in _COUNTS if dead_letter.count_attempts(letter.value, [path]))
        if len(self.strange) < _STRANGE_MAX and letter.copyable() and (strange := _strange(letter.original_headers)):
            self.strange.append(strange)

    def note_time(self, message: Any) -> None:
        """Note when a record was written, and nothing else of it."""
        stamp_ms = message.timestamp()[1]
        if stamp_ms >= LIKELY_MS:
            self.newest_ms = max(stamp_ms, self.newest_ms or stamp_ms)
            self.oldest_ms = min(stamp_ms, self.oldest_ms or stamp_ms)

    def count_recognised(self) -> Counter[str]:
        """Count families, without what is unknown or only says that this service retried it before."""
        return Counter({family: count for family, count in self.families.items() if family not in (UNKNOWN, "own")})


def _strange(headers: Headers) -> Headers:
    """Return the headers that no framework's row has, with the beginning of each value."""
    found = ((name, value) for name, value in headers if value and name not in KNOWN)
    return [(name, value[:_VALUE_BYTES_MAX]) for name, value in islice(found, _HEADERS_MAX)]


def _name_own_record(message: Any) -> str | None:
    """Name a record that this service wrote, else None: a letter that failed again has its framework's headers behind ours."""
    headers = message.headers() or []
    if retry_headers.read_labels(headers) is not None and headers[-1][0] in retry_headers.OURS:
        return _RETRIES
    return _PARKED if headers and any(name == retry_headers.PARKED_REASON for name, _ in headers[-7:]) else None


BY_NAME, BY_LETTERS, BY_BOTH = "name", "letters", "name and letters"
HOUR_MS = 3_600_000
WINDOWS_MS = (HOUR_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS)
_SOON_MS = 1_000
# So many groups, origins or exceptions are told of a topic.
_NAMES_MAX = 10


class FoundTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of dead letters, or one that may be.

    Attributes:
      attached: whether the policy file has it; else it is named in a comment.
      is_letters_estimate: whether `letters` was reckoned from some offsets, since not all were read.
      sampled: how many were looked at.
      families, groups, origins, exceptions: what the sampled letters say, and how many of them say it.
      readers: groups that have committed an offset here; `origin_readers` those that have in each origin.
      per_second, window: letters a second, reckoned by offsets and timestamps, and in which time before now.
      copied_times: whether times are those of the records that failed.
      aliases: header names by field, where nobody knows the headers.
      pointers, converters: of those looked at, how many have no payload, or failed in a converter of Kafka Connect.
      questions: what a person must say.
      why: why it is not attached.
    """

    topic: str
    partitions: int
    found_by: str
    attached: bool
    letters: int
    is_letters_estimate: bool = False
    sampled: int
    families: dict[str, int]
    groups: dict[str, int]
    origins: dict[str, int]
    exceptions: dict[str, int]
    readers: list[str]
    origin_readers: dict[str, list[str]]
    newest_ms: int | None
    oldest_ms: int | None
    per_second: float | None = None
    window: str | None = None
    copied_times: bool = False
    aliases: dict[str, str]
    pointers: int = 0
    converters: int = 0
    questions: list[str]
    why: str | None = None


class Known(msgspec.Struct, frozen=True):
    """The cluster's topics with their number of partitions, the groups that read each topic, and all groups."""

    topics: Mapping[str, int]
    readers: Mapping[str, Collection[str]]
    groups: Collection[str]


def describe_topic(sample: TopicSample, known: Known) -> FoundTopic | None:
    """Describe a topic as if its sample had all its letters; None where nothing speaks for dead letters."""
    topic, families = sample.topic, sample.count_recognised()
    named, maybe = topic_words.is_dead(topic), topic_words.may_be_dead(topic)
    guessed = topic_words.guess_field(sample.strange, known.topics.keys(), known.groups)
    tells = bool(families) or "exception" in guessed.aliases
    ours = sum(sample.ours.values())
    if not named and not tells and not (maybe and not sample.letters):
        return None
    aliases = guessed.aliases if _is_unknown(sample) else {}
    origins = _count_header(sample, aliases.get("origin_topic")) or sample.origins
    readers = sorted(known.readers.get(topic, ()))
    found_by = BY_BOTH if named and tells else BY_NAME if named else BY_LETTERS if tells else BY_NAME
    why = _why_not(sample, named, readers, ours)
    return FoundTopic(
        topic=topic, partitions=known.topics.get(topic, 0), found_by=found_by, attached=why is None, letters=sample.letters,
        sampled=sample.letters, families=_most(sample.families), readers=readers, origins=_most(origins),
        groups=_most(sample.groups or _count_header(sample, aliases.get("consumer_group"))),
        exceptions=_most(sample.exceptions + _count_header(sample, aliases.get("exception"))),
        origin_readers={origin: sorted(known.readers.get(origin, ())) for origin in _most(origins)},
        newest_ms=sample.newest_ms, oldest_ms=sample.oldest_ms, copied_times=sample.copied,
        aliases=aliases, pointers=sample.pointers, converters=sample.converters,
        questions=_questions(sample, found_by, readers, guessed) if why is None else [], why=why,
    )  # fmt: skip


def add_rate(topic: FoundTopic, since: Mapping[int, int], now_ms: int) -> FoundTopic:
    """Add the letters a second, in the shortest window before now with any; `since` counts them by its length in milliseconds."""
    for window_ms in sorted(since):
        if count := since[window_ms]:
            # A topic may be younger than that.
            age_ms = window_ms if topic.oldest_ms is None else min(window_ms, max(_SOON_MS, now_ms - topic.oldest_ms))
            return msgspec.structs.replace(topic, per_second=count * 1_000 / age_ms, window=duration_text(window_ms))
    return topic


def _why_not(sample: TopicSample, named: bool, readers: list[str], ours: int) -> str | None:
    if topic_words.is_retry(sample.topic):
        return "a retry topic by its name: whoever reads it retries already"
    if ours and ours * 2 > sample.letters:
        return f"what lies there are {sample.ours.most_common(1)[0][0]}"
    if not named and not sample.letters:
        return "its name may mean dead letters, and it is empty"
    if not named and readers:
        return f"only its letters look like dead letters, and it is read by {', '.join(readers)}"
    return None


def _is_unknown(sample: TopicSample) -> bool:
    """Whether frameworks' headers tell nothing, or only names that people write by hand."""
    return not sample.count_recognised().keys() - {"ad-hoc"}


def _questions(sample: TopicSample, found_by: str, readers: list[str], guessed: topic_words.Guess) -> list[str]:
    asked = list(guessed.questions) if _is_unknown(sample) else []
    if counted := sample.body_counts.most_common(1):
        path = counted[0][0]
        asked.append(f"bodies have a number {path}: does it count failed deliveries? Then aliases: {{attempts: [{path}]}}")
    if found_by == BY_LETTERS:
        asked.insert(0, "only its letters look like dead letters, not its name: is it a topic of dead letters?")
    if readers:
        asked.append(f"{', '.join(readers)} reads it, too: does that send letters back? Then stop it, or they come back twice")
    if not sample.letters:
        asked.append("it is empty: nothing is known but its name")
    elif sample.families[UNKNOWN] * 2 > sample.letters and not guessed.aliases:
        asked.append("its letters do not say what failed: rules can ask for age, attempt and headers alone")
    return asked


def _count_header(sample: TopicSample, header: str | None) -> Counter[str]:
    """Count the values of an aliased header, as a policy file with this alias reads them; None for `header` counts nothing."""
    values = (dict(headers).get(header) for headers in sample.strange) if header else ()
    return Counter(value.decode(errors="replace") for value in values if value)


def _most(counter: Counter[str]) -> dict[str, int]:
    return dict(counter.most_common(_NAMES_MAX))
