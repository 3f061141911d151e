"""Which rights each part of the service needs on the brokers, and what stops without them: the one table of them.

What is needed of a topic, a group or a transactional id is derived from the settings and the policy file. To read or write
includes to describe. Nothing of the cluster itself is needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from retry.kafka import authorization, topics
from retry.kafka.authorization import CREATE, DESCRIBE, DESCRIBE_CONFIGS, GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Right
from retry.kafka.interface import AdminClient
from retry.policies.registry import Registry

log = logging.getLogger(__name__)

ALL_NAMES = "*"
WORKER, COMMANDS, ANALYTICS, API, SCHEDULER, TOPICS = "worker", "commands", "analytics", "api", "scheduler", "topics create"
CONSOLE, DISCOVER = "console", "discover"
MIGRATE, MIGRATE_SCHEDULER = "migrate", "migrate scheduler"
# What comes in or goes out by the scheduler's own settings; see `retry.scheduling.messages.settings`.
SCHEDULES, HISTORY, SCHEDULED_TARGETS = "schedules topics", "history topic", "targets of schedules"
# What `retry migrate` is given as --from, --to and --group.
MOVED_FROM, MOVED_TO, MOVED_GROUPS = "topics moved from", "topic moved to", "groups of the other service"

Name = tuple[str, bool]
NamesOfTopics = Mapping[str, list[Name]]


class Need(NamedTuple):
    """A right that is needed.

    Attributes:
      of: the name, or which names, see `resolve_names`.
      vital: whether a process does not start without it.
    """

    who: str
    resource: str
    of: str
    operation: str
    without: str
    vital: bool = False


class AclLine(NamedTuple):
    who: str
    of: str
    right: Right
    without: str
    vital: bool


_RUNNING = (
    Need(WORKER, TOPIC, "changelog", READ, "no table is filled: nothing is sent", vital=True),
    Need(WORKER, TOPIC, "changelog", WRITE, "nothing is taken in or sent", vital=True),
    Need(WORKER, TOPIC, "changelog", DESCRIBE_CONFIGS, "it cannot tell whether the topic loses entries", vital=True),
    Need(WORKER, TOPIC, "outcomes", WRITE, "nothing is taken in or sent", vital=True),
    Need(WORKER, TOPIC, "outcomes", READ, "letters that were parked by reference are not returned"),
    Need(WORKER, TOPIC, "lineage", READ, "attempts are not counted: no letter is taken in", vital=True),
    Need(WORKER, TOPIC, "lineage", WRITE, "nothing is sent", vital=True),
    Need(WORKER, TOPIC, "positions", READ, "it is not known where to read on: no letter is taken in", vital=True),
    Need(WORKER, TOPIC, "positions", WRITE, "no letter is taken in", vital=True),
    Need(WORKER, TOPIC, "parked", WRITE, "what cannot be retried is not parked", vital=True),
    Need(WORKER, TOPIC, "parked", DESCRIBE_CONFIGS, "what is larger than 1 MB is parked without its payload"),
    Need(WORKER, TOPIC, "parked timers", WRITE, "timers that are given up are parked among the letters"),
    Need(WORKER, TOPIC, "calls", WRITE, "no webhook is called"),
    Need(WORKER, TOPIC, "audit", WRITE, "letters are not acted on"),
    Need(WORKER, TOPIC, "discarded", WRITE, "letters are not discarded, edited or patched"),
    Need(WORKER, TOPIC, "notes", WRITE, "consoles do not know that it runs, nor which circuit breakers are open"),
    Need(WORKER, TOPIC, "parked", READ, "letters that are parked there are not returned"),
    Need(WORKER, TOPIC, "discarded", READ, "letters that are discarded are not returned"),
    Need(WORKER, GROUP, "intake group", READ, "no letter is taken in"),
    Need(WORKER, GROUP, "table group", READ, "no shard is owned: nothing is sent"),
    Need(WORKER, TRANSACTIONAL_ID, "intake writers", WRITE, "no letter is taken in"),
    Need(WORKER, TRANSACTIONAL_ID, "sweep writers", WRITE, "nothing is sent"),
)
_LETTERS = (
    Need(WORKER, TOPIC, "dead letters", READ, "its letters are not taken in"),
    Need(WORKER, TOPIC, "dead letters", DESCRIBE_CONFIGS, "retry_retention_left_seconds says nothing of it"),
    Need(WORKER, TOPIC, "targets", WRITE, "what goes there waits"),
    Need(WORKER, TOPIC, "targets", DESCRIBE_CONFIGS, "letters over 1 MB compressed are parked, too large ones tried in vain"),
    Need(WORKER, TOPIC, "retry topics", READ, "ramps and the console go by silence, not by what groups have passed"),
    Need(WORKER, TOPIC, "teams' parking topics", READ, "letters that are parked there are not returned"),
    Need(WORKER, TOPIC, "origins", READ, "letters that only point to their payload are parked"),
    Need(WORKER, TOPIC, "task definitions", READ, "its tasks are not taken in"),
    Need(WORKER, GROUP, "consumer groups", DESCRIBE, "reports do not know which retries it has passed"),
)
_OTHERS = (
    Need(COMMANDS, TOPIC, "changelog", READ, "letters, failures, pauses, explain, verify, reschedule, act, actions, erase"),
    Need(COMMANDS, TOPIC, "changelog", WRITE, "pause, resume, actions; reschedule, act and erase --yes"),
    Need(COMMANDS, TRANSACTIONAL_ID, "control writers", WRITE, "pause, resume, tasks, actions; reschedule, act and erase --yes"),
    Need(COMMANDS, TOPIC, "changelog", DESCRIBE_CONFIGS, "topics check, verify, reschedule, act, erase"),
    Need(COMMANDS, TOPIC, "outcomes", READ, "explain, verify; letters, failures and act of what was parked by reference"),
    Need(COMMANDS, TOPIC, "outcomes", DESCRIBE_CONFIGS, "verify"),
    Need(COMMANDS, TOPIC, "lineage", DESCRIBE, "topics check, reschedule, act, erase"),
    Need(COMMANDS, TOPIC, "lineage", DESCRIBE_CONFIGS, "erase"),
    Need(COMMANDS, TOPIC, "calls", DESCRIBE, "topics check"),
    Need(COMMANDS, TOPIC, "parked timers", DESCRIBE, "topics check"),
    Need(COMMANDS, TOPIC, "parked", READ, "letters, failures but for state:waiting; verify, erase; explain of what was parked"),
    Need(COMMANDS, TOPIC, "parked", DESCRIBE_CONFIGS, "verify, erase"),
    Need(COMMANDS, TOPIC, "targets", READ, "letters, failures but for state:waiting; verify, erase; explain of what was retried"),
    Need(COMMANDS, TOPIC, "targets", DESCRIBE_CONFIGS, "verify, erase"),
    Need(COMMANDS, TOPIC, "dead letters", READ, "inspect --topic, try, explain, verify"),
    Need(COMMANDS, TOPIC, "dead letters", DESCRIBE_CONFIGS, "verify"),
    Need(COMMANDS, TOPIC, "task definitions", READ, "tasks pause, tasks resume"),
    Need(COMMANDS, TOPIC, "task definitions", WRITE, "tasks pause, tasks resume, tasks samples --send"),
    Need(COMMANDS, TOPIC, "task outputs", WRITE, "tasks backfill"),
    Need(COMMANDS, GROUP, "intake group", DESCRIBE, "explain, verify, topics check, topics reread"),
    Need(COMMANDS, GROUP, "table group", DESCRIBE, "act, erase; explain does not know whether a worker runs"),
    Need(COMMANDS, TOPIC, "audit", READ, "audit, actions members, actions undo, erase"),
    Need(COMMANDS, TOPIC, "audit", WRITE, "actions hold, resume, cancel"),
    Need(COMMANDS, TOPIC, "audit", DESCRIBE_CONFIGS, "erase"),
    Need(COMMANDS, TOPIC, "notes", DESCRIBE, "topics check"),
    Need(COMMANDS, TOPIC, "positions", READ, "explain, verify, topics check, topics reread"),
    Need(COMMANDS, TOPIC, "positions", WRITE, "topics reread with --yes"),
    Need(COMMANDS, TOPIC, "discarded", READ, "act, erase, topics check, verify; explain of what was discarded"),
    Need(COMMANDS, TOPIC, "discarded", DESCRIBE_CONFIGS, "verify, erase"),
    Need(COMMANDS, TRANSACTIONAL_ID, "intake writers", DESCRIBE, "verify: which transactions wrote a duplicate"),
    Need(COMMANDS, TRANSACTIONAL_ID, "sweep writers", DESCRIBE, "verify: which transactions wrote a duplicate"),
    Need(ANALYTICS, TOPIC, "outcomes", READ, "report, and all of analytics", vital=True),
    Need(ANALYTICS, TOPIC, "retry topics", READ, "retries are not seen: all letters look as if they never came back"),
    Need(API, TOPIC, "changelog", READ, "it does not start", vital=True),
    Need(API, TOPIC, "changelog", WRITE, "no timer is taken in", vital=True),
    Need(API, TOPIC, "changelog", DESCRIBE_CONFIGS, "it does not start", vital=True),
    Need(API, TOPIC, "calls", READ, "it does not start", vital=True),
    Need(API, GROUP, "table group", DESCRIBE, "it does not start where RETRY_ENCRYPTION_KEYS is set"),
    *(Need(TOPICS, TOPIC, "created topics", operation, "topics create") for operation in (CREATE, DESCRIBE, DESCRIBE_CONFIGS)),
)
_CONSOLE = (
    Need(CONSOLE, TOPIC, "changelog", READ, "it shows nothing", vital=True),
    Need(CONSOLE, TOPIC, "changelog", WRITE, "nobody acts or pauses there"),
    Need(CONSOLE, TOPIC, "changelog", DESCRIBE_CONFIGS, "nobody acts there"),
    Need(CONSOLE, TRANSACTIONAL_ID, "control writers", WRITE, "nobody acts or pauses there"),
    Need(CONSOLE, TOPIC, "lineage", DESCRIBE, "nobody acts there"),
    Need(CONSOLE, TOPIC, "task definitions", WRITE, "tasks are not cancelled there"),
    Need(CONSOLE, TOPIC, SCHEDULES, WRITE, "schedules are not cancelled there"),
    Need(CONSOLE, TOPIC, HISTORY, READ, "it does not show which schedules were sent"),
    Need(CONSOLE, TOPIC, "calls", READ, "it does not show which timers were called"),
    Need(CONSOLE, TOPIC, "outcomes", READ, "it does not know what came back, and has no trends"),
    Need(CONSOLE, TOPIC, "parked", READ, "it shows no letter that is parked there"),
    Need(CONSOLE, TOPIC, "parked", DESCRIBE_CONFIGS, "it does not know when Kafka deletes what rests there"),
    Need(CONSOLE, TOPIC, "teams' parking topics", READ, "it shows no letter that is parked there"),
    Need(CONSOLE, TOPIC, "teams' parking topics", DESCRIBE_CONFIGS, "it does not know when Kafka deletes what rests there"),
    Need(CONSOLE, TOPIC, "discarded", READ, "it shows no letter that was discarded"),
    Need(CONSOLE, TOPIC, "discarded", DESCRIBE_CONFIGS, "it does not know when Kafka deletes what rests there"),
    Need(CONSOLE, TOPIC, "audit", READ, "it does not show who did what"),
    Need(CONSOLE, TOPIC, "audit", WRITE, "payloads are not shown, and nobody pauses there"),
    Need(CONSOLE, TOPIC, "notes", READ, "owners, notes, merges, splits and kept filters are not shown"),
    Need(CONSOLE, TOPIC, "notes", WRITE, "owners, notes, merges, splits and filters are not kept"),
    Need(CONSOLE, GROUP, "notifications group", READ, "nobody is told of new failures, where rules of notifications are set"),
    Need(CONSOLE, TOPIC, "targets", READ, "a letter's page does not say where it was sent, nor the page of tasks which ran"),
    Need(CONSOLE, TOPIC, "targets", DESCRIBE_CONFIGS, "nobody acts there on letters larger than 1 MB"),
    Need(CONSOLE, TOPIC, "dead letters", READ, "a letter's page does not have the letter as it was"),
    Need(CONSOLE, TOPIC, "positions", READ, "a letter's page does not know whether it was taken in"),
    Need(CONSOLE, GROUP, "intake group", DESCRIBE, "a letter's page does not know whether it was taken in"),
    Need(CONSOLE, GROUP, "table group", DESCRIBE, "it does not know whether a worker runs"),
)
# Whoever looks for what is there needs to see it; it is asked for by name, and only while somebody looks.
_FINDING = (
    Need(DISCOVER, TOPIC, "all topics", READ, "a topic is not found, or is named as one that was not looked at"),
    Need(DISCOVER, GROUP, "all groups", DESCRIBE, "who reads which topic is not known"),
)
_WAITING_UNKNOWN = "it is not known what waits"
_MIGRATING = (
    Need(MIGRATE, TOPIC, MOVED_FROM, READ, _WAITING_UNKNOWN),
    Need(MIGRATE, TOPIC, MOVED_TO, WRITE, "nothing is moved"),
    Need(MIGRATE, GROUP, MOVED_GROUPS, READ, _WAITING_UNKNOWN),
    Need(MIGRATE, TRANSACTIONAL_ID, "migrate writers", WRITE, "nothing is moved"),
    Need(MIGRATE_SCHEDULER, TOPIC, MOVED_FROM, READ, _WAITING_UNKNOWN),
    Need(MIGRATE_SCHEDULER, TOPIC, MOVED_FROM, WRITE, "nothing is moved: what is moved is ended there"),
    Need(MIGRATE_SCHEDULER, TOPIC, MOVED_TO, READ, "it is not known what was asked for there since"),
    Need(MIGRATE_SCHEDULER, TOPIC, MOVED_TO, WRITE, "nothing is moved"),
    Need(MIGRATE_SCHEDULER, GROUP, MOVED_GROUPS, DESCRIBE, "it is not known whether a scheduler runs"),
    Need(MIGRATE_SCHEDULER, TRANSACTIONAL_ID, "migrate writers", WRITE, "nothing is moved"),
)
_DOOR = (
    Need(SCHEDULER, TOPIC, SCHEDULES, READ, "its schedules are not taken in"),
    Need(SCHEDULER, TOPIC, SCHEDULES, WRITE, "its schedules are not sent: the one that is done is deleted there"),
    Need(SCHEDULER, TOPIC, SCHEDULED_TARGETS, WRITE, "what goes there waits"),
    Need(SCHEDULER, TOPIC, HISTORY, READ, "its REST API has no history"),
    Need(SCHEDULER, TOPIC, HISTORY, WRITE, "nothing is sent"),
)
_SCHEDULING = tuple(need._replace(who=SCHEDULER) for need in _RUNNING)
NEEDS = (*_RUNNING, *_LETTERS, *_OTHERS, *_CONSOLE, *_FINDING, *_MIGRATING, *_SCHEDULING, *_DOOR)


def list_rights(who: Iterable[str], names: NamesOfTopics) -> Iterator[AclLine]:
    """Yield the rights that some parts of the service need, each right once for each part."""
    for part in who:
        seen: set[Right] = set()
        for need in NEEDS:
            for name, prefixed in names.get(need.of, []) if need.who == part else ():
                right = Right(need.resource, name, need.operation, prefixed)
                if right not in seen:
                    seen.add(right)
                    yield AclLine(part, need.of, right, need.without, need.vital)


def resolve_names(app_id: str, registry: Registry) -> NamesOfTopics:
    """Return the names that each word of the table stands for, each with whether it is a prefix."""
    own = topics.build_topic_names(app_id)
    literal = {
        **{word.replace("_", " "): [name] for word, name in own._asdict().items()},
        "created topics": {*topics.list_internal_topics(app_id), own.parked, own.parked_timers, *registry.parking()},
        "targets": registry.list_targets(),
        "retry topics": registry.retry_targets(),
        "teams' parking topics": registry.parking(),
        "origins": set().union(*(route.origins for route in registry.list_routes())),
        "task definitions": registry.tasks.topics if registry.tasks else (),
        "task outputs": registry.tasks.allowed if registry.tasks else (),
        "consumer groups": registry.list_group_topics(),
    }
    prefixes = {f"{part} writers": f"{app_id}-{part}-" for part in ("intake", "sweep", "control", "migrate")}
    patterns = [extract_prefix(pattern.pattern) for pattern, _ in registry.patterns]
    exact = [(topic, False) for topic in sorted(registry.exact) if not any(is_in(topic, each) for each in patterns)]
    return {
        **{word: [(name, False) for name in sorted(of)] for word, of in literal.items()},
        **{word: [(prefix, True)] for word, prefix in prefixes.items()},
        "dead letters": [*exact, *dict.fromkeys(patterns)],
        "all topics": [(ALL_NAMES, False)],
        "all groups": [(ALL_NAMES, False)],
    }


def demand_rights(admin: AdminClient, who: str, names: NamesOfTopics) -> None:
    """Ask which rights this user has: raises RightMissing where a vital one is missing, and warns of each other one."""
    wanted = list(list_rights([who], names))
    gone = set(authorization.list_missing_rights(admin, [line.right for line in wanted]))
    if vital := [line.right for line in wanted if line.vital and line.right in gone]:
        raise authorization.build_right_missing(*vital)
    for line in wanted:
        if line.right in gone:
            log.warning("%s: %s", line.without, authorization.build_right_missing(line.right))


def is_in(name: str, granted: Name) -> bool:
    """Whether what is granted holds for a name."""
    return granted[0] == ALL_NAMES or (name.startswith(granted[0]) if granted[1] else name == granted[0])


def extract_glob_prefix(glob: str) -> Name:
    """Return the prefix of all names that a glob matches, all names where it is empty, or the name where that is no glob.

    >>> extract_glob_prefix("orders-retry-*"), extract_glob_prefix("orders"), extract_glob_prefix("*-retry")
    (('orders-retry-', True), ('orders', False), ('*', False))
    """
    text = re.split(r"[*?[]", glob, maxsplit=1)[0]
    return (text, text != glob) if text else (ALL_NAMES, False)


def extract_prefix(pattern: str) -> Name:
    """Return the prefix of all names that a regular expression matches; all names where it is empty.

    >>> extract_prefix(r"orders\\.[a-z]+\\.DLT"), extract_prefix(r"(a|b)\\.DLT")
    (('orders.', True), ('*', False))
    >>> extract_prefix(r"ab?c"), extract_prefix(r"ab|cd")
    (('a', True), ('*', False))
    """
    found = re.match(r"\^?((?:[A-Za-z0-9_-]|\\[._-])*)", pattern)
    text, rest = (found[1], pattern[found.end() :]) if found else ("", pattern)
    if rest[:1] in ("?", "*", "{"):
        text = text[:-1].removesuffix("\\")
    # An alternative at the top level begins anew.
    inner = re.sub(r"\\.|\[[^]]*\]", "", rest)
    while (shorter := re.sub(r"\([^()]*\)", "", inner)) != inner:
        inner = shorter
    prefix = "" if "|" in inner else text.replace("\\", "")
    return (prefix, True) if prefix else (ALL_NAMES, False)
