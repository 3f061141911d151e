"""Found topics → what a policy file would say of them: teams, targets, groups; and what a person must be asked. Pure.

Targets are only topics that the cluster has, or names for new ones; letters name them, and nothing a letter says is taken
that is no topic of the cluster, or is itself read as dead letters.

The name of an exception's class tells which failures no waiting mends: a letter that cannot be read, or that breaks a rule of its
content, is the same letter an hour later. What is missing may come, so of that a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from retry.dead_letters.dead_letter import POINTING
from retry.operations.discover import topic_words
from retry.operations.discover.found_topic import FoundTopic, Known
from retry.policies.tasks import TEAM
from retry.policies.topic_names import ORIGIN, find_topic_fault

# A longer name, or one that does not print, is none that a rule should hold.
_CLASS_CHARS_MAX = 249
_CLASS_NAME = re.compile(r"[^.$:/\\]+$")
# The names that runtimes, serialisers and validators of the frameworks give; a database's `SerializationFailure` is no such one.
_LASTING = re.compile(
    r"deseriali[sz]|seriali[sz]ation(exception|error)$|conversionexception$|decod(e|ing)(error|exception)$|codecexception$"
    r"|json(parse|processing|mapping|syntax|decode|eof|io)|mismatchedinput|unrecognizedproperty|invalid(format|protocolbuffer|definition)"
    r"|avro(type|runtime|missingfield)exception|schemaparseexception|malformed|bad(message|schema)"
    r"|validation(exception|error|failed)|argumentnotvalid|unprocessable"
)  # fmt: skip
_CONSTRAINT = re.compile(r"(javax|jakarta)\.validation\.ConstraintViolationException$")
_MISSING = re.compile(r"(?<!class)(?<!host)(?<!broker)(?<!leader)(?<!ordinator)notfound|nosuch(element|key|entity)|doesnotexist")


def select_lasting(exceptions: Iterable[str]) -> list[str]:
    """Select the classes whose letters fail however often they are retried.

    >>> select_lasting(["org.apache.kafka.common.errors.SerializationException", "java.net.SocketTimeoutException",
    ...                 "pydantic_core.ValidationError", "psycopg.errors.SerializationFailure"])
    ['org.apache.kafka.common.errors.SerializationException', 'pydantic_core.ValidationError']
    """
    printable = (name for name in exceptions if name.isprintable() and len(name) <= _CLASS_CHARS_MAX)
    return [name for name in printable if _LASTING.search(_shorten_class(name)) or _CONSTRAINT.search(name)]


def select_missing(exceptions: Iterable[str]) -> list[str]:
    """Select the classes that say that something is not there: some of that comes later, and some never.

    >>> select_missing(["com.acme.OrderNotFoundException", "java.lang.ClassNotFoundException"])
    ['com.acme.OrderNotFoundException']
    """
    return [name for name in exceptions if _MISSING.search(_shorten_class(name))]


def _shorten_class(name: str) -> str:
    found = _CLASS_NAME.search(name)
    return found.group().lower() if found else ""


_GROUP_CHARS_MAX = 249
_RETRY_ENDS = (".retry", "-retry", "_retry")
# Topics that Kafka Streams makes for itself: a record sent there would skip the steps before, or change a table.
_OF_STREAMS = ("-repartition", "-changelog")


class ProposedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A section of the policy file for one topic of dead letters.

    Attributes:
      retry_to: a topic, or `origin`, with which `allowed_targets` says where letters may go.
      origins: topics from which records may be fetched that letters only point to.
      group: who reads the retries.
      create: whether the topic `retry_to` is not there yet.
      lasting: classes of exceptions whose letters no retry mends, for a rule that parks them.
      questions: those about the topic, and about where its letters should go.
    """

    found: FoundTopic
    retry_to: str
    allowed_targets: list[str]
    origins: list[str]
    group: str | None
    create: bool
    lasting: list[str]
    questions: list[str]


def propose_topics(topics: Iterable[FoundTopic], known: Known, internal: Collection[str]) -> dict[str, list[ProposedTopic]]:
    """Propose a section for each attached topic, by team; `internal` are the service's own topics."""
    attached = [topic for topic in topics if topic.attached]
    sources = {topic.topic for topic in attached}
    taken = {*sources, *internal, ORIGIN}
    usable = {
        name for name in known.topics if name not in taken and not name.endswith(_OF_STREAMS) and find_topic_fault(name) is None
    }
    subjects = {topic.topic: _subject(topic, usable) for topic in attached}
    first = topic_words.find_first_words(set(subjects.values())) if subjects else {}
    teams: dict[str, list[ProposedTopic]] = {}
    for topic in attached:
        team = first[subjects[topic.topic]]
        of_team = teams.setdefault(f"{team}-team" if team == TEAM else team, [])
        of_team.append(_propose_topic(topic, subjects[topic.topic], usable, known))
    return {team: teams[team] for team in sorted(teams)}


def _subject(topic: FoundTopic, usable: Collection[str]) -> str:
    """Return the one usable origin that the letters name, or else the subject in the topic's name."""
    origins = [origin for origin in topic.origins if origin in usable]
    named = topic_words.find_subject(topic.topic)
    return origins[0] if len(origins) == 1 else named


def _propose_topic(topic: FoundTopic, subject: str, usable: Collection[str], known: Known) -> ProposedTopic:
    origins = [origin for origin in topic.origins if origin in usable]
    questions = list(topic.questions)
    if strange := [origin for origin in topic.origins if origin not in usable and find_topic_fault(origin) is None]:
        questions.append(f"letters name {', '.join(strange[:3])} as their origin, which no letter can go to: is the name right?")
    readers = {origin: topic.origin_readers.get(origin, []) for origin in origins}
    existing = next((name for base in dict.fromkeys((subject, topic_words.find_subject(topic.topic))) for end in _RETRY_ENDS
                     if (name := base + end) in usable), None)  # fmt: skip
    if existing:
        of_retries = sorted(known.readers.get(existing, ()))
        readers = {existing: of_retries} if of_retries else readers
        questions.append(_of_existing(existing, of_retries))
        retry_to, allowed = existing, []
    elif origins and all(len(groups) <= 1 for groups in readers.values()):
        retry_to, allowed = ORIGIN, origins
        questions += [f"no group has committed anything in {each}: who reads it?" for each, of in readers.items() if not of]
    else:
        retry_to, allowed = _new_name(subject, known.topics), []
        questions += _why_new(origins, readers, retry_to)
    return ProposedTopic(
        found=topic, retry_to=retry_to, allowed_targets=allowed, origins=_to_fetch_from(topic, origins, allowed),
        group=_find_reader_group(topic, readers), create=not allowed and retry_to not in known.topics,
        lasting=(lasting := select_lasting(topic.exceptions)), questions=[*questions, *_of_failures(topic, lasting)],
    )  # fmt: skip


def _of_failures(topic: FoundTopic, lasting: list[str]) -> list[str]:
    """Ask of failures that waiting may not mend; a rule parks what it surely does not."""
    missing = [name for name in select_missing(topic.exceptions) if name not in lasting]
    park = "letters that cannot be read or are not valid stay so: the rule parks them at once; is there one that recovers?"
    comes = f"does what was not there come later ({', '.join(missing[:3])})? If it never does, add the name to a rule that parks"
    return [park] * bool(lasting) + [comes] * bool(missing)


def _of_existing(retry_to: str, groups: list[str]) -> str:
    if not groups:
        return f"{retry_to} is there, and no group has committed in it: who reads it, with isolation.level=read_committed?"
    several = " All of them will see a retry." if len(groups) > 1 else ""
    return f"{retry_to} is read by {', '.join(groups[:5])}: with isolation.level=read_committed?{several}"


def _why_new(origins: list[str], readers: Mapping[str, list[str]], retry_to: str) -> list[str]:
    if not origins:
        return [f"letters do not say where they come from: who is to read {retry_to}, or which topic should they go back to?"]
    shared = next(origin for origin in origins if len(readers[origin]) > 1)
    several = ", ".join(readers[shared][:5])
    return [f"{shared} is read by {several}: with retry_to: origin all of them would see a retry. Which one reads {retry_to}?"]


def _new_name(subject: str, there: Collection[str]) -> str:
    name = f"{subject[:240]}.retry"
    # One of that name is there, and letters cannot go to it.
    return f"{subject[:230]}.retry.letters" if name in there else name


def _to_fetch_from(topic: FoundTopic, origins: list[str], allowed: list[str]) -> list[str]:
    points = topic.pointers and any(family in POINTING for family in topic.families)
    return origins if points and not allowed else []


def _find_reader_group(topic: FoundTopic, readers: Mapping[str, list[str]]) -> str | None:
    """Return the only group that reads the topics in `readers`; None where there is not just one, or letters name another one."""
    groups = {group for of in readers.values() for group in of}
    (group,) = groups if len(groups) == 1 and groups.issuperset(topic.groups) else (None,)
    return group if group and group.strip() and group.isprintable() and len(group) <= _GROUP_CHARS_MAX else None
