"""Every mistake in a policy file is refused with its line, its path and what would be right."""

from __future__ import annotations

import pytest

from retry.errors import PolicyFileInvalid
from retry.policies.policy_file import parse
from retry.policies.yaml_document import Own

OWN = Own(frozenset({"app-changelog"}), "app-parked")
HEAD = """\
defaults:
  max_attempts: 8
teams:
  pay:
    topics:
      - dead_letters: pay.DLT
        retry_to: pay.retry
"""
TOPIC = "teams.pay.topics[0]"


def demand_refusal(text: str) -> PolicyFileInvalid:
    with pytest.raises(PolicyFileInvalid) as caught:
        parse(text, "p.yaml")
    assert str(caught.value).startswith(f"p.yaml:{caught.value.line}: {caught.value.path}: ")
    assert len(str(caught.value)) < 400
    return caught.value


# What follows HEAD, the line from 1 on which the mistake stands, its path, and a part of the reason.
TAILS = [
    ("        quiet_hours: {from: 22:00, to: '06:00', zone: UTC}\n", 8, f"{TOPIC}.quiet_hours.from", "write it in quotes"),
    ("        quiet_hours:\n        - {from: '1:00', to: '23:00', zone: UTC}\n", 9,
     f"{TOPIC}.quiet_hours[0].from", "is not a time of day"),
    ("        align:\n          cron: 0 0 30 2 *\n", 9, f"{TOPIC}.align.cron", "never matches"),
    ("        align:\n", 8, f"{TOPIC}.align", "none is for no alignment"),
    ("        backoff: {kind: constant, delay: 30}\n", 8, f"{TOPIC}.backoff.delay", "write it like"),
    ("        backoff:\n          kind: constant\n          delay: -30s\n", 10,
     f"{TOPIC}.backoff.delay", "write it like"),
    ("        backoff:\n          kind: exponential\n          delay: 1s\n          factor: 1e308\n", 11,
     f"{TOPIC}.backoff.factor", "from 1 to 1,000"),
    ("        backoff: {kind: exponential, delay: 1s, factor: 1.0e+308}\n", 8, f"{TOPIC}.backoff.factor", "from 1 to"),
    ("        backoff: {kind: exponential, delay: 1s, factor: .inf}\n", 8, f"{TOPIC}.backoff.factor", "from 1 to"),
    ("        backoff: {kind: exponential, delay: 1s, factor: .nan}\n", 8, f"{TOPIC}.backoff.factor", "from 1 to"),
    ("        backoff: {kind: exponential, delay: 1s, factor: 0.5}\n", 8, f"{TOPIC}.backoff.factor", "from 1 to"),
    ("        backoff: {kind: steps, delays: []}\n", 8, f"{TOPIC}.backoff.delays", "list of 1 to"),
    ("        backoff:\n          kind: steps\n          delays:\n          - 1m\n          - 1x\n", 12,
     f"{TOPIC}.backoff.delays[1]", "write it like"),
    ("        backoff: {kind: constant}\n", 8, f"{TOPIC}.backoff.delay", "is missing"),
    ("        backoff: {kind: cubic}\n", 8, f"{TOPIC}.backoff.kind", "constant, linear, exponential, steps"),
    ("        backoff: {kind: constant, delay: 1s, step: 1s}\n", 8, f"{TOPIC}.backoff.step", "no such key"),
    ("        backoff: {kind: constant, delay: 1s, max_delay: 3654d}\n", 8, f"{TOPIC}.backoff.max_delay", "ten years"),
    ("        backoff: 5s\n", 8, f"{TOPIC}.backoff", "not a mapping"),
    ("        jitter: 1.5\n", 8, f"{TOPIC}.jitter", "none, full, equal, proportional"),
    ("        max_attempts: -1\n", 8, f"{TOPIC}.max_attempts", "whole number"),
    ("        max_attempts:\n", 8, f"{TOPIC}.max_attempts", "nothing is not a whole number"),
    ("        max_attempts: 0x" + "f" * 9_000 + "\n", 8, f"{TOPIC}.max_attempts", "that large"),
    ("        max_attempts: " + "9" * 9_000 + "\n", 8, f"{TOPIC}.max_attempts", "not what its tag says"),
    ("        max_age: 2020-01-01\n", 8, f"{TOPIC}.max_age", "quote it"),
    ("        max_age: 1:30\n", 8, f"{TOPIC}.max_age", "write it like"),
    ("        honour_retry_at: maybe\n", 8, f"{TOPIC}.honour_retry_at", "true or false"),
    ("        max_attempt: 3\n", 8, f"{TOPIC}.max_attempt", "did you mean max_attempts?"),
    ("        park: true\n", 8, f"{TOPIC}.park", "no such key here"),
    ("        park_to: 7\n", 8, f"{TOPIC}.park_to", "expected `str`, got `int`"),
    ("        park_to: ''\n", 8, f"{TOPIC}.park_to", "length >= 1"),
    ("        park_to: two words\n", 8, f"{TOPIC}.park_to", "not a topic name"),
    ("        park_to: ..\n", 8, f"{TOPIC}.park_to", "not a topic name"),
    ("        park_to: __consumer_offsets\n", 8, f"{TOPIC}.park_to", "internal to Kafka"),
    ("        park_to: origin\n", 8, f"{TOPIC}.park_to", "word of retry_to"),
    ("        park_to: pay.DLT\n", 8, f"{TOPIC}.park_to", "round for ever"),
    ("        park_to: pay.parked\n        allowed_targets: [pay.retry]\n", 8, f"{TOPIC}.park_to", "not among allowed"),
    ("        allowed_targets: [pay.parked]\n", 7, f"{TOPIC}.retry_to", "not among allowed_targets"),
    ("        allowed_targets:\n        - pay.retry\n        - __x\n", 10, f"{TOPIC}.allowed_targets[1]", "internal"),
    ("        allowed_targets: [pay.retry, pay.DLT]\n", 8, f"{TOPIC}.allowed_targets[1]", "round for ever"),
    ("        allowed_targets: [pay.retry, origin]\n", 8, f"{TOPIC}.allowed_targets[1]", "word of retry_to"),
    ("        rules:\n        - {exception: '*', retry_to: pay.DLT}\n", 9,
     f"{TOPIC}.rules[0].retry_to", "round for ever"),
    ("        rules:\n        - {exception: '*', retry_to: __x}\n", 9, f"{TOPIC}.rules[0].retry_to", "internal"),
    ("        rules:\n        - {exception: '*', retry_to: origin}\n", 9,
     f"{TOPIC}.rules[0].retry_to", "allowed_targets"),
    ("        allowed_targets: [pay.retry]\n        rules:\n        - {exception: x, retry_to: y}\n", 10,
     f"{TOPIC}.rules[0].retry_to", "not among allowed_targets"),
    ("        rules:\n        - {exception: x}\n        - {park: true}\n", 10,
     f"{TOPIC}.rules[1]", "asks nothing of a letter"),
    ("        rules:\n        - {exception: ''}\n", 9, f"{TOPIC}.rules[0].exception", "length >= 1"),
    ("        rules:\n        - {exception: x, park: 1}\n", 9, f"{TOPIC}.rules[0].park", "expected `bool`"),
    ("        rules:\n        - exception: x\n          max_age: 9\n", 10,
     f"{TOPIC}.rules[0].max_age", "write it like"),
    ("        rules:\n        - {exception: []}\n", 9, f"{TOPIC}.rules[0].exception", "length >= 1"),
    ("        rules:\n        - exception: [x, 7]\n", 9, f"{TOPIC}.rules[0].exception[1]", "expected `str`"),
    ("        rules:\n        - {exeption: x}\n", 9, f"{TOPIC}.rules[0].exeption", "did you mean exception?"),
    ("        rules:\n        - exception: x\n          message: '(a'\n", 10, f"{TOPIC}.rules[0].message",
     "'(a' is not an RE2 expression: missing ): (a"),
    ("        rules:\n        - message: '(a)\\1'\n", 9, f"{TOPIC}.rules[0].message", "invalid escape sequence"),
    ("        rules:\n        - message: 'a(?=b)'\n", 9, f"{TOPIC}.rules[0].message", "invalid perl operator"),
    ("        rules:\n        - message: '((a{100}){100}){100}'\n", 9, f"{TOPIC}.rules[0].message", "is not an RE2"),
    ("        rules:\n        - message: '\\pL{900}'\n", 9, f"{TOPIC}.rules[0].message", "pattern too large"),
    ("        rules:\n        - message: " + "a" * 501 + "\n", 9, f"{TOPIC}.rules[0].message", "length <= 500"),
    ("        rules:\n        - message: \"\\uD800\"\n", 9, f"{TOPIC}.rules[0].message", "surrogate"),
    ("        rules:\n        - attempt: 0\n", 9, f"{TOPIC}.rules[0].attempt", "from 1 upwards, like 3, 3.., 2..5 or ..4"),
    ("        rules:\n        - attempt: true\n", 9, f"{TOPIC}.rules[0].attempt", "True is not a number or a range"),
    ("        rules:\n        - attempt: 5..2\n", 9, f"{TOPIC}.rules[0].attempt", "'5..2' is not"),
    ("        rules:\n        - attempt: '..'\n", 9, f"{TOPIC}.rules[0].attempt", "'..' is not"),
    ("        rules:\n        - attempt: 2-5\n", 9, f"{TOPIC}.rules[0].attempt", "'2-5' is not"),
    ("        rules:\n        - attempt: '12'\n        - attempt: 1.5\n", 10, f"{TOPIC}.rules[1].attempt", "1.5 is not"),
    ("        rules:\n        - attempt: 0x" + "f" * 9_000 + "\n", 9, f"{TOPIC}.rules[0].attempt", "that large"),
    ("        rules:\n        - age: 2\n", 9, f"{TOPIC}.rules[0].age", "2 is not a duration"),
    ("        rules:\n        - headers: {}\n", 9, f"{TOPIC}.rules[0].headers", "names no header"),
    ("        rules:\n        - headers:\n            x.y: 5\n", 10, f"{TOPIC}.rules[0].headers.x.y", "expected `str |"),
    ("        rules:\n        - headers: [x]\n", 9, f"{TOPIC}.rules[0].headers", "expected `mapping`"),
    ("        rules:\n        - null_value: 1\n", 9, f"{TOPIC}.rules[0].null_value", "a condition, true or false"),
    ("        rules:\n        - null_value: cancel\n", 9, f"{TOPIC}.rules[0].null_value", "cancel are for the topic, the team"),
    ("        null_value: true\n", 8, f"{TOPIC}.null_value", "retry or cancel here"),
    ("        old_timestamp: keep\n", 8, f"{TOPIC}.old_timestamp", "now or park"),
    ("        null_value: drop\n", 8, f"{TOPIC}.null_value", "retry or cancel here"),
    ("        rules:\n        - {null_value: true, ordered: 1}\n", 9, f"{TOPIC}.rules[0].ordered", "expected `bool`"),
    ("        rules:\n        - {attempt: 2, retry_to: '{origin}'}\n", 9,
     f"{TOPIC}.rules[0].retry_to", "{origin} is completed by the letter; say in allowed_targets"),
    ("        ordered: often\n", 8, f"{TOPIC}.ordered", "expected `bool`"),
    ("        origins: [pay, __x]\n", 8, f"{TOPIC}.origins[1]", "internal"),
    ("        origins: [origin]\n", 8, f"{TOPIC}.origins[0]", "word of retry_to"),
    ("        origins: ['pay.*']\n", 8, f"{TOPIC}.origins[0]", "not a topic name"),
    ("        origins: pay\n", 8, f"{TOPIC}.origins", "expected `list`"),
    ("        aliases: {excption: x}\n", 8, f"{TOPIC}.aliases.excption", "did you mean exception?"),
    ("        aliases: {family: x}\n", 8, f"{TOPIC}.aliases.family", "is nothing that letters tell"),
    ("        aliases:\n          exception: []\n", 9, f"{TOPIC}.aliases.exception", "length >= 1"),
    ("        aliases:\n          exception: [x, 5]\n", 9, f"{TOPIC}.aliases.exception[1]", "expected `str`"),
    ("        aliases: {exception: $.error}\n", 8, f"{TOPIC}.aliases.exception", "attempts alone may have one"),
    ("        aliases: {attempts: '$.items[0]'}\n", 8, f"{TOPIC}.aliases.attempts", "is no path that is read"),
    ("        aliases: [x]\n", 8, f"{TOPIC}.aliases", "expected `mapping`"),
    ("        park_to: '{origin}'\n", 8, f"{TOPIC}.park_to", "not a topic name"),
    ("        allowed_targets: ['{origin}']\n", 8, f"{TOPIC}.allowed_targets[0]", "not a topic name"),
    ("        rules: {exception: x}\n", 8, f"{TOPIC}.rules", "expected `list`, got `mapping`"),
    ("      - dead_letters: x\n", 8, "teams.pay.topics[1]", "retry_to is missing"),
    ("      - retry_to: x\n", 8, "teams.pay.topics[1]", "dead_letters is missing"),
    ("      - {dead_letters: pay.retry, retry_to: x}\n", 7, f"{TOPIC}.retry_to", "round for ever"),
    ("      - {dead_letters: {pattern: 'pay\\..*'}, retry_to: x}\n", 7, f"{TOPIC}.retry_to", "(teams.pay.topics[1])"),
    ("      - {dead_letters: x, retry_to: origin}\n", 8, "teams.pay.topics[1].retry_to", "allowed_targets"),
    ("      - {dead_letters: pay.DLT, retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "belongs to team pay"),
    ("      - {dead_letters: '', retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "length >= 1"),
    ("      - {dead_letters: 'a b', retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "not a topic name"),
    ("      - {dead_letters: ' a', retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "not a topic name"),
    ("      - {dead_letters: 'a.*', retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "not a topic name"),
    ("      - {dead_letters: ä, retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "not a topic name"),
    ("      - {dead_letters: " + "a" * 250 + ", retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters", "1 to 249"),
    ("      - {dead_letters: {pattern: '(a'}, retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters.pattern",
     "not a regular expression"),
    ("      - {dead_letters: {pattern: '.*'}, retry_to: x}\n", 8,
     "teams.pay.topics[1].dead_letters.pattern", "internal"),
    ("      - {dead_letters: {patern: 'a'}, retry_to: x}\n", 8, "teams.pay.topics[1].dead_letters.patern", "pattern?"),
    ("  fin:\n    topics:\n    - {dead_letters: pay.DLT, retry_to: x}\n", 10, "teams.fin.topics[0].dead_letters",
     "already belongs to team pay"),
    ("  fin:\n    topics: []\n", 9, "teams.fin.topics", "length >= 1"),
    ("  fin:\n", 8, "teams.fin", "expected `mapping`, got `null`"),
    ("  fin:\n    park_to: pay.DLT\n    topics: [{dead_letters: x, retry_to: y}]\n", 9,
     "teams.fin.park_to", "for ever"),
    ("  fin:\n    jitter: half\n    topics: [{dead_letters: x, retry_to: y}]\n", 9, "teams.fin.jitter", "not one of"),
    ("  fin:\n    retry_to: a\n    topics: [{dead_letters: x, allowed_targets: [b]}]\n", 9, "teams.fin.retry_to",
     "not among allowed_targets"),
    ("  fin:\n    retry_to: origin\n    topics: [{dead_letters: x}]\n", 9, "teams.fin.retry_to", "in allowed_targets"),
    ("  ' ': {topics: []}\n", 8, "teams. ", "1 to 100 printable"),
    ("  pay: {topics: []}\n", 8, "teams.pay", "is given twice"),
    ("  7: {topics: []}\n", 8, "teams", "'7' is not text; quote it"),
    ("  on: {topics: []}\n", 8, "teams", "'on' is not text; quote it"),
    ("  [a]: {topics: []}\n", 8, "teams", "is not text"),
    ('  "a\\e[31m": {topics: []}\n', 8, "teams", "printable"),
    ("        group: ''\n", 8, f"{TOPIC}.group", "length >= 1"),
    ("        group: ' '\n", 8, f"{TOPIC}.group", "not the name of a consumer group"),
    ('        group: "a\\tb"\n', 8, f"{TOPIC}.group", "not the name of a consumer group"),
    ("        group: " + "g" * 250 + "\n", 8, f"{TOPIC}.group", "length <= 249"),
    ("        group: [shop]\n", 8, f"{TOPIC}.group", "expected `str`"),
    ("        rules:\n        - {exception: x, group: ' '}\n", 9, f"{TOPIC}.rules[0].group", "not the name of a consumer group"),
    ("  fin:\n    group: 7\n    topics: [{dead_letters: x, retry_to: y}]\n", 9, "teams.fin.group", "expected `str`"),
    ("        retry_to: other\n", 8, f"{TOPIC}.retry_to", "is given twice"),
    ("  fin:\n    rate: 5\n    topics: [{dead_letters: x, retry_to: y}]\n", 9, "teams.fin.rate", "5 is not a rate"),
    ("  fin:\n    budget: 5/0s\n    topics: [{dead_letters: x, retry_to: y}]\n", 9, "teams.fin.budget", "not from 1s to 31d"),
    ("  fin:\n    aliases: {causes: x}\n    topics: [{dead_letters: x, retry_to: y}]\n", 9,
     "teams.fin.aliases.causes", "did you mean cause?"),
    ("  fin:\n    allowed_targets: [y]\n    topics: [{dead_letters: x, retry_to: y}]\n", 9,
     "teams.fin.allowed_targets", "no such key here"),
    ("targets:\n  pay.retri: {rate: 5/s}\n", 9, "targets.pay.retri",
     "no letter of any team, and no task, may go there; did you mean pay.retry?"),
    ("targets:\n  pay.retry: {}\n", 9, "targets.pay.retry", "limits nothing"),
    ("targets:\n  pay.retry: 5/s\n", 9, "targets.pay.retry", "expected `mapping`"),
    ("targets:\n  pay.retry: {rat: 5/s}\n", 9, "targets.pay.retry.rat", "did you mean rate?"),
    ("targets:\n  pay.retry: {rate: fast}\n", 9, "targets.pay.retry.rate", "'fast' is not a rate"),
    ("targets:\n  pay.retry:\n    breaker: {failures: 5, within: 1m}\n", 10, "targets.pay.retry.breaker", "open_for is missing"),
    ("targets:\n  pay.retry:\n    breaker: {failures: 0, within: 1m, open_for: 1s}\n", 10,
     "targets.pay.retry.breaker.failures", "expected `int` >= 1"),
    ("targets:\n  pay.retry:\n    breaker: {failures: 1, within: 0s, open_for: 1s}\n", 10,
     "targets.pay.retry.breaker.within", "no time at all"),
    ("targets:\n  pay.retry:\n    breaker: {failures: 1, within: 1s, open_for: 1}\n", 10,
     "targets.pay.retry.breaker.open_for", "not a duration"),
    ("targets: [pay.retry]\n", 8, "targets", "expected `mapping`"),
    ("team: {}\n", 8, "team", "did you mean teams?"),
]  # fmt: skip


@pytest.mark.parametrize(("tail", "line", "path", "reason"), TAILS, ids=range(len(TAILS)))
def test_a_mistake_is_refused_where_it_stands(tail, line, path, reason):
    error = demand_refusal(HEAD + tail)
    assert (error.line, error.path) == (line, path)
    assert reason in error.reason


TEMPLATES = [
    ("{orign}", "did you mean origin?"),
    ("{0}", "{0} is not a part that is known; {origin}, {group}, {dead_letters} and {1}, {2}… are"),
    ("{}", "{} is not a part"),
    ("{ origin }", "did you mean origin?"),
    ("{{origin}}", "is not a template"),
    ("{origin", "is not a template"),
    ("origin}", "is not a template"),
    ("{origin} retry", "is not a template"),
    ("{1}.{3}", "{3} is group 3 of a pattern, but dead_letters of teams.pay.topics[1] has 2"),
]


@pytest.mark.parametrize(("written", "reason"), TEMPLATES)
@pytest.mark.parametrize("level", ["topic", "rule", "team"])
def test_a_template_that_cannot_be_filled_in_is_refused(written, reason, level):
    head = "        allowed_targets: [pay.retry]\n"
    topic = "      - dead_letters: {pattern: '(a)(b)'}\n        allowed_targets: [y]\n"
    tail, line, path = {
        "topic": (f"{head}{topic}        retry_to: '{written}'\n", 11, "teams.pay.topics[1].retry_to"),
        "rule": (
            f"{head}{topic}        retry_to: y\n        rules:\n        - stage: x\n          retry_to: '{written}'\n",
            14,
            "teams.pay.topics[1].rules[0].retry_to",
        ),
        "team": (f"{head}{topic}    retry_to: '{written}'\n", 11, "teams.pay.retry_to"),
    }[level]
    error = demand_refusal(HEAD + tail)
    assert (error.line, error.path) == (line, path)
    assert reason in error.reason


def test_a_group_needs_a_pattern():
    error = demand_refusal(HEAD + "      - {dead_letters: x, allowed_targets: [y], retry_to: '{1}'}\n")
    assert (error.line, error.path) == (8, "teams.pay.topics[1].retry_to")
    assert error.reason == "{1} is group 1 of a pattern, but dead_letters of teams.pay.topics[1] is no pattern"


def test_a_template_that_no_topic_uses_is_refused_all_the_same():
    assert "did you mean group?" in demand_refusal(HEAD + "    retry_to: '{groop}'\n").reason


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nteams: *b\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (BOMB, 1, "anchors and aliases are not allowed"),
        ("defaults: {}\nteams: *x\n", 2, "anchors and aliases"),
        ("defaults: {\n", 2, "YAML: "),
        ("defaults: {}\n\tteams: {}\n", 2, "YAML: "),
        ("teams: {}\n---\nteams: {}\n", 2, "YAML: "),
        ("teams: {}\n# \x07\n", 2, "character #x0007"),
        ("[" * 5_000, 1, "20 levels deep"),
        ("a: " * 3, 1, "YAML: "),
    ],
    ids=["bomb", "alias", "open", "tab", "two documents", "control character", "deep", "nested"],
)
def test_p48_what_is_not_plain_yaml_is_refused(text, line, reason):
    error = demand_refusal(text)
    assert (error.line, error.path) == (line, "file")
    assert reason in error.reason


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [
        ("[]", 1, "file"),
        ("0", 1, "file"),
        ("\n\nteams\n", 3, "file"),
        ("teams: []", 1, "teams"),
        ("defaults: 5", 1, "defaults"),
        ("defaults:\n  retry_to: x\n", 2, "defaults.retry_to"),
        ("defaults:\n  jitter: ~\n", 2, "defaults.jitter"),
        ("defaults:\n  max_age: !!python/object/apply:os.system [id]\n", 2, "defaults.max_age"),
        ("defaults:\n  max_age: !!binary aGk=\n", 2, "defaults.max_age"),
        ("defaults:\n  max_attempts: !!int x\n", 2, "defaults.max_attempts"),
        ("defaults:\n  <<: {jitter: full}\n", 2, "defaults"),
    ],
)
def test_what_is_no_policy_file_is_refused(text, line, path):
    error = demand_refusal(text)
    assert (error.line, error.path) == (line, path)


@pytest.mark.parametrize(
    ("keys", "path", "topic"),
    [
        ("retry_to: app-changelog", "retry_to", "app-changelog"),
        ("retry_to: r, park_to: app-calls", "park_to", "app-calls"),
        ("retry_to: origin, allowed_targets: [a, app-outcomes]", "allowed_targets[1]", "app-outcomes"),
        ("retry_to: r, rules: [{exception: A, retry_to: app-lineage}]", "rules[0].retry_to", "app-lineage"),
        ("retry_to: r, park_to: __consumer_offsets", "park_to", "__consumer_offsets"),
        ("retry_to: '{group}', allowed_targets: [__transaction_state]", "allowed_targets[0]", "__transaction_state"),
        ("retry_to: r, dead_letters: app-parked", "dead_letters", "app-parked"),
        ("retry_to: r, dead_letters: {pattern: app-.*}", "dead_letters.pattern", "app-changelog"),
    ],
)
def test_topics_of_kafka_and_of_the_service_itself_are_refused_by_line_and_path(keys: str, path: str, topic: str) -> None:
    own = Own(frozenset(f"app-{part}" for part in ("changelog", "outcomes", "lineage", "calls")), "app-parked")
    keys = keys if "dead_letters" in keys else f"dead_letters: d, {keys}"
    with pytest.raises(PolicyFileInvalid) as caught:
        parse(f"teams:\n  pay:\n    topics:\n    - {{{keys}}}\n", "p.yaml", own=own)
    assert (caught.value.line, caught.value.path) == (4, f"teams.pay.topics[0].{path}")
    assert topic in caught.value.reason


@pytest.mark.parametrize("key", ["topics", "allowed_targets", "park_to"])
def test_tasks_neither_come_from_the_service_itself_nor_go_there(key: str) -> None:
    written = {"topics": "[t]", "allowed_targets": "[a]", "park_to": "p"}
    written[key] = written[key].replace(written[key].strip("[]"), "app-changelog")
    text = "tasks:\n" + "".join(f"  {name}: {value}\n" for name, value in written.items())
    with pytest.raises(PolicyFileInvalid) as caught:
        parse(text, "p.yaml", own=Own(frozenset({"app-changelog"}), "app-parked"))
    assert caught.value.line == 2 + list(written).index(key)
    assert caught.value.path.startswith(f"tasks.{key}")
    assert "the service's own topics" in caught.value.reason


def test_no_letter_is_retried_in_the_parking_topic_of_the_service_and_none_parks_there_by_name() -> None:
    with pytest.raises(PolicyFileInvalid, match="the service's own topics"):
        parse(f"{HEAD}        park_to: app-parked\n", "p.yaml", own=OWN)
    for key in ("retry_to: app-parked", "retry_to: r, allowed_targets: [r, app-parked]"):
        with pytest.raises(PolicyFileInvalid, match="the service's own topics"):
            parse(f"teams: {{pay: {{topics: [{{dead_letters: d, {key}}}]}}}}", "p.yaml", own=OWN)


def test_two_teams_do_not_park_in_one_topic_and_topics_of_one_team_do() -> None:
    def file(first: str, second: str) -> str:
        topics = [f"dead_letters: a.DLT, retry_to: a, park_to: a.parked, rules: [{{stage: x, {first}}}]",
                  "dead_letters: c.DLT, retry_to: a, park_to: a.parked", f"dead_letters: b.DLT, {second}"]  # fmt: skip
        rows = [f"    - {{{topic}}}\n" for topic in topics]
        return f"teams:\n  a:\n    topics:\n{rows[0]}{rows[1]}  b:\n    topics:\n{rows[2]}"

    registry = parse(file("park_to: more.parked", "retry_to: b"), "p.yaml")
    assert [registry.parking_team(topic) for topic in ("a.parked", "more.parked", "app-parked")] == ["a", "a", None]
    told = [(source, registry.permits_parking(f"{source}.DLT", "a.parked")) for source in "acbx"]
    # Of what no team has, any more or ever, nothing is sent wherever it rests.
    assert told == [("a", True), ("c", True), ("b", False), ("x", True)]
    assert all(registry.permits_parking(f"{source}.DLT", "app-parked") for source in "acbx")
    for first, second in (
        ("park: true", "retry_to: b, park_to: a.parked"),
        ("park_to: shared", "retry_to: b, rules: [{stage: y, park_to: shared}]"),
    ):
        with pytest.raises(PolicyFileInvalid, match="is where team a parks") as caught:
            parse(file(first, second), "p.yaml")
        assert (caught.value.line, caught.value.path.startswith("teams.b.topics[0]")) == (8, True)
