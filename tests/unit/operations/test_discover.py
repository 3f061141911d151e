"""What `retry discover` makes of samples: which topics, which teams and targets, and a policy file that can be used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff.parse import DEFAULT
from retry.errors import TopicsInvalid
from retry.kafka import offset_ranges
from retry.kafka.offset_ranges import Span
from retry.operations.discover import look, topic_words
from retry.operations.discover.found_topic import FoundTopic, Known, TopicSample, add_rate, describe_topic
from retry.operations.discover.policy_text import write_policy_text
from retry.operations.discover.proposal import ProposedTopic, propose_topics
from retry.policies.policy_file import parse
from retry.policies.registry import Registry
from retry.record import Headers, Record
from tests.support.plans import plan_for

NOW_MS = 1_795_284_700_000
SPRING: Headers = [
    ("kafka_dlt-original-topic", b"shop.orders"), ("kafka_dlt-original-consumer-group", b"shop-service"),
    ("kafka_dlt-exception-fqcn", b"com.acme.Wrapper"), ("kafka_dlt-exception-cause-fqcn", b"com.acme.Refused"),
]  # fmt: skip
OURS: Headers = [
    ("retry-id", b"00000000deadbeef"), ("retry-attempt", b"1"), ("retry-source", b"shop.orders.DLT/0/1"),
    ("retry-due-ms", b"1795284700000"), ("retry-policy", b"shop/shop.orders.DLT"), ("retry-first-failed-ms", b"1795284700000"),
]  # fmt: skip
TOPICS = {"shop.orders": 3, "shop.orders.DLT": 2, "shop.carts": 1, "shop.carts.DLT": 1, "bank.loans": 1}
READERS = {"shop.orders": {"shop-service"}, "shop.carts": {"carts", "reports"}}
KNOWN = Known(TOPICS, READERS, {"shop-service", "carts", "reports"})


def sample(topic: str, *letters: Headers, value: bytes | None = b"{}", key: bytes | None = b"k") -> TopicSample:
    made = TopicSample(topic)
    for n, headers in enumerate(letters):
        made.count_letter(Record((topic, 0, n), key, value, headers, (1, NOW_MS - n * 60_000)))
    return made


def describe_seen(topic: str, *letters: Headers, known: Known = KNOWN, **of: bytes | None) -> FoundTopic | None:
    return describe_topic(sample(topic, *letters, **of), known)


def write_and_read(topics: Iterable[FoundTopic | None], there: Mapping[str, int] = TOPICS) -> tuple[Registry, str]:
    """The file, read as `retry policies check` reads it."""
    there_all = [topic for topic in topics if topic]
    teams = propose_topics(there_all, Known(there, READERS, KNOWN.groups), ["retry-changelog"])
    others = [topic for topic in there_all if not topic.attached]
    text = write_policy_text(teams, others, "cluster", NOW_MS, len(there))
    return parse(text, "found.yaml"), text


def one(topic: FoundTopic | None, there: Mapping[str, int] = TOPICS) -> ProposedTopic:
    assert topic is not None
    ((only,),) = propose_topics([topic], Known(there, READERS, KNOWN.groups), []).values()
    return only


@pytest.mark.parametrize(
    "name",
    ["orders.DLT", "orders-dlt", "ordersDLQ", "orders__billing__dlq", "dead-letter-topic-in", "poison_queue", "dlq-lcc-4x7vd",
     "wolverine-dead-letter-queue", "default.XQ", "dead_messages", "orders.retry-dlt", "dlq.orders", "OrdersDeadLetters"],
)  # fmt: skip
def test_names_of_dead_letter_topics_are_known(name: str) -> None:
    assert topic_words.is_dead(name) and not topic_words.is_retry(name)


@pytest.mark.parametrize("name", ["orders", "loads", "adult.orders", "orders-retry-1000", "deadlines", "audit", "orders.retry"])
def test_names_of_other_topics_are_not_taken_for_them(name: str) -> None:
    assert not topic_words.is_dead(name) and not topic_words.may_be_dead(name)


def test_a_topic_is_found_by_name_and_by_letters_and_goes_back_to_where_its_letters_came_from() -> None:
    topic = describe_seen("shop.orders.DLT", SPRING, SPRING, [])
    assert topic and (topic.found_by, topic.attached) == ("name and letters", True)
    assert topic.families == {"spring-kafka": 2, "unknown": 1} and topic.groups == {"shop-service": 2}
    assert topic.exceptions == {"com.acme.Refused": 2}
    # Whose offsets say of each retry what became of it, so that ramps and reports need not go by silence.
    assert one(topic).group == "shop-service" and one(topic).found.groups.keys() == {"shop-service"}
    registry, text = write_and_read([topic])
    assert registry.list_group_topics() == {"shop-service": {"shop.orders"}}
    route = registry.route("shop.orders.DLT")
    assert (route.team, route.default_plan.retry_to, route.allowed_targets) == ("shop", "origin", {"shop.orders"})
    assert "com.acme.Refused 2" in text and "written by spring-kafka 2, unknown 1 of 3 looked at, group shop-service 2" in text


def test_what_several_groups_read_gets_a_retry_topic_of_its_own_and_a_question() -> None:
    letter: Headers = [("original-topic", b"shop.carts"), ("exception-class", b"com.acme.Bad")]
    topic = one(describe_seen("shop.carts.DLT", letter))
    assert (topic.retry_to, topic.create, topic.allowed_targets) == ("shop.carts.retry", True, [])
    assert any("carts, reports" in question for question in topic.questions)
    # One that is there is taken instead.
    assert one(describe_seen("shop.carts.DLT", letter), {**TOPICS, "shop.carts.retry": 1}).create is False


def test_who_reads_a_retry_topic_that_is_there_is_said_and_else_asked() -> None:
    letter: Headers = [("original-topic", b"shop.carts"), ("exception-class", b"com.acme.Refused")]
    there = {**TOPICS, "shop.carts.retry": 1}

    def find_topic(*groups: str) -> ProposedTopic:
        known = Known(there, {**READERS, "shop.carts.retry": set(groups)}, {*groups, "carts", "reports"})
        topic = describe_seen("shop.carts.DLT", letter, known=known)
        assert topic is not None
        ((only,),) = propose_topics([topic], known, []).values()
        return only

    assert find_topic().questions[-1].startswith("shop.carts.retry is there, and no group has committed in it: who reads it")
    assert find_topic("carts").questions[-1] == "shop.carts.retry is read by carts: with isolation.level=read_committed?"
    assert find_topic("carts", "audit").questions[-1].endswith("All of them will see a retry.")
    # Who has it alone knows which retries worked, though two read where the letters come from.
    assert (find_topic("carts").group, find_topic().group, find_topic("carts", "audit").group) == ("carts", None, None)


def test_a_group_that_reads_the_dead_letters_is_asked_about() -> None:
    known = Known(TOPICS, {**READERS, "shop.orders.DLT": {"redrive"}}, {"redrive"})
    topic = describe_seen("shop.orders.DLT", SPRING, known=known)
    assert topic and topic.attached and any("redrive reads it, too" in question for question in topic.questions)


def test_letters_alone_are_enough_where_nobody_reads_them_and_else_are_asked_about() -> None:
    topic = describe_seen("shop.failures-of-orders", SPRING)
    assert topic and (topic.found_by, topic.attached) == ("letters", True)
    assert any("not its name" in question for question in topic.questions)
    read = describe_seen("shop.odd", SPRING, known=Known(TOPICS, {"shop.odd": {"who"}}, {"who"}))
    assert read and not read.attached and "who" in str(read.why)


def test_retry_topics_and_what_this_service_wrote_are_not_attached() -> None:
    spring = describe_seen("shop.orders-retry-1000", SPRING)
    assert spring and not spring.attached and "retry topic" in str(spring.why)
    assert describe_seen("shop.orders.again", [*SPRING, *OURS]) is None
    assert describe_seen("shop.orders.parked", [*SPRING, *OURS, ("retry-parked-reason", b"rule")]) is None
    mixed = describe_seen("shop.orders.again", [*SPRING, *OURS], [*SPRING, *OURS], SPRING)
    assert mixed and not mixed.attached and "retries of this service" in str(mixed.why)
    # What failed again after a retry is a letter like any other.
    again = describe_seen("shop.orders.DLT", [*OURS, *SPRING])
    assert again and again.attached and again.families == {"spring-kafka": 1}
    (_, text) = write_and_read([spring])
    assert "teams: {}" in text and "# shop.orders-retry-1000: a retry topic" in text


def test_ordinary_topics_are_not_found() -> None:
    assert describe_seen("shop.orders", [("traceparent", b"00-1-2-01"), ("tenant", b"blue")], []) is None
    assert describe_seen("shop.orders") is None


def test_an_empty_topic_is_found_by_its_name_alone() -> None:
    topic = one(describe_seen("bank.loans.DLT"))
    assert (topic.retry_to, topic.create) == ("bank.loans.retry", True)
    assert any("it is empty" in question for question in topic.questions)
    other = describe_seen("bank.loans.errors")
    assert other and not other.attached


def test_headers_that_nobody_knows_become_aliases_where_their_values_speak_for_it() -> None:
    letter: Headers = [
        ("x-exception-class", b"com.acme.Refused"), ("X-Error-Message", b"no answer"), ("x-source-topic", b"bank.loans"),
        ("x-consumer-group", b"carts"), ("x-attempts", b"3"), ("x-source-partition", b"0"), ("x-source-offset", b"17"),
    ]  # fmt: skip
    topic = describe_seen("bank.DLT", letter, letter)
    assert topic and topic.aliases == {
        "origin_topic": "x-source-topic", "origin_partition": "x-source-partition", "origin_offset": "x-source-offset",
        "consumer_group": "x-consumer-group", "attempts": "x-attempts", "exception": "x-exception-class",
        "message": "X-Error-Message",
    }  # fmt: skip
    assert (topic.origins, topic.groups, topic.exceptions) == ({"bank.loans": 2}, {"carts": 2}, {"com.acme.Refused": 2})
    registry, _ = write_and_read([topic])
    route = registry.route("bank.DLT")
    assert (route.default_plan.retry_to, route.allowed_targets) == ("origin", {"bank.loans"})
    assert registry.route("bank.DLT").aliases == {field: (name,) for field, name in topic.aliases.items()}


def test_headers_whose_values_do_not_fit_become_questions_or_nothing() -> None:
    odd: Headers = [("x-exception", b"17"), ("source-topic", b"elsewhere"), ("x-attempts", b"many"), ("x-error-code", b"E1")]
    guessed = topic_words.guess_field([odd], TOPICS, set())
    assert guessed.aliases == {}
    assert len(guessed.questions) == 2 and "x-exception" in guessed.questions[0] and "source-topic" in guessed.questions[1]


def test_a_count_in_the_body_is_asked_about() -> None:
    topic = one(describe_seen("bank.DLT", [], value=b'{"id": 1, "retryAttempt": 3}'))
    assert any("$.retryAttempt" in question for question in topic.questions)
    assert not any("$." in question for question in one(describe_seen("bank.DLT", [], value=b'{"attempts": "no"}')).questions)
    assert not any("$." in question for question in one(describe_seen("bank.DLT", SPRING, value=b'{"attempts": 3}')).questions)


def test_headers_of_frameworks_are_no_aliases() -> None:
    topic = describe_seen("shop.orders.DLT", [*SPRING, ("x-exception", b"com.acme.Other")])
    assert topic and topic.aliases == {}


def test_a_header_whose_name_a_policy_file_cannot_have_is_no_alias() -> None:
    topic = describe_seen(
        "bank.DLT", [("x-exception\n- dead_letters", b"com.acme.Refused"), ("$.x-exception", b"com.acme.Refused")]
    )
    assert topic and topic.aliases == {} and write_and_read([topic])[0].reads_topic("bank.DLT")


def test_a_topic_that_is_called_origin_is_no_target() -> None:
    letter: Headers = [("original-topic", b"origin"), ("failure-reason", b"x")]
    assert one(describe_seen("bank.DLT", letter), {"origin": 1}).retry_to == "bank.retry"


def test_pointers_name_the_topics_that_records_may_be_fetched_from() -> None:
    letter: Headers = [("__dlq.errors.topic", b"shop.carts"), ("__dlq.errors.partition", b"0"), ("__dlq.errors.offset", b"7")]
    topic = describe_seen("dlq.shop.carts", letter, key=None, value=None)
    registry, text = write_and_read([topic])
    assert registry.route("dlq.shop.carts").origins >= {"shop.carts"}
    assert "1 have no payload" in text


def test_teams_are_first_words_without_what_all_begin_with() -> None:
    names = ["acme.shop.orders.DLT", "acme.bank.loans.DLT"]
    registry, _ = write_and_read([describe_seen(name) for name in names], dict.fromkeys(names, 1))
    assert [registry.route(name).team for name in names] == ["shop", "bank"]


def test_what_is_written_down_are_the_defaults() -> None:
    registry, _ = write_and_read([describe_seen("shop.orders.DLT", SPRING)])
    assert registry.route("shop.orders.DLT").default_plan.policy == DEFAULT


def test_a_target_is_never_a_topic_of_dead_letters_or_one_that_is_not_there() -> None:
    letter: Headers = [("original-topic", b"shop.orders.DLT"), ("failure-reason", b"x")]
    lost: Headers = [("original-topic", b"nowhere"), ("failure-reason", b"x")]
    of_streams: Headers = [("__streams.errors.topic", b"app-count-repartition"), ("__streams.errors.exception", b"a.B")]
    there = {**TOPICS, "app-count-repartition": 1}
    topics = [
        describe_seen("shop.orders.DLT", SPRING),
        describe_seen("a.DLT", letter),
        describe_seen("b.DLT", lost),
        describe_seen("app-dlq", of_streams),
    ]
    registry, _ = write_and_read(topics, there)
    plans = [registry.route(name).default_plan for name in ("a.DLT", "b.DLT", "app-dlq")]
    assert [plan.retry_to for plan in plans] == ["a.retry", "b.retry", "app.retry"]


def test_letters_a_second_are_those_of_the_shortest_time_in_which_there_were_any() -> None:
    topic = describe_seen("shop.orders.DLT", SPRING, SPRING)
    assert topic is not None
    day = add_rate(topic, {3_600_000: 0, 86_400_000: 864}, NOW_MS + 86_400_000)
    assert (day.per_second, day.window) == (0.01, "1d")
    # The topic is one minute old.
    assert add_rate(topic, {3_600_000: 120}, NOW_MS).per_second == 2.0
    assert add_rate(topic, {3_600_000: 0}, NOW_MS).per_second is None


def test_a_topic_that_is_deleted_meanwhile_is_left_out_and_nothing_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    there, asked = {"a.DLT", "gone.DLT"}, list[list[Span]]()

    def read_batches(_: object, spans: Iterable[Span], records_max: int | None = None) -> Iterator[list[Record]]:
        asked.append([span for span in spans if span.start < span.stop])
        for span in asked[-1]:
            if span.topic == "gone.DLT":
                there.discard("gone.DLT")
                raise TopicsInvalid(["gone.DLT: unknown"], "look at the topic's name")
            yield [Record((span.topic, span.partition, n), None, None, [], (1, NOW_MS)) for n in range(span.start, span.stop)]

    monkeypatch.setattr(offset_ranges, "read_batches", read_batches)
    monkeypatch.setattr(offset_ranges, "partitions_of", lambda *_: [(topic, 0) for topic in there])
    cluster: Any = SimpleNamespace(reader={}, admin=None)
    spans = [Span("a.DLT", 0, 3, 5), Span("gone.DLT", 0, 0, 5), Span("a.DLT", 1, 0, 1)]
    found_at = [(m.partition(), m.offset()) for batch in look._read_spans(cluster, spans) for m in batch]
    assert found_at == [(0, 3), (0, 4), (1, 0)]
    assert asked[1] == [Span("a.DLT", 1, 0, 1)]


def test_what_cannot_be_read_though_it_is_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_reading(*_: object, **_options: object) -> Iterator[list[Record]]:
        raise TopicsInvalid(["a.DLT: no answer for 30 s"], "look at the brokers, then try again")

    monkeypatch.setattr(offset_ranges, "read_batches", refuse_reading)
    monkeypatch.setattr(offset_ranges, "partitions_of", lambda *_: [("a.DLT", 0)])
    cluster: Any = SimpleNamespace(reader={}, admin=None)
    with pytest.raises(TopicsInvalid, match="no answer"):
        list(look._read_spans(cluster, [Span("a.DLT", 0, 0, 5)]))


_TEXT = st.text(max_size=40)
_BYTES = st.one_of(st.binary(max_size=40), _TEXT.map(lambda text: text.encode(errors="replace")))
_KNOWN = ["x-exception", "original-topic", "x-error", "error-message", "consumer-group", "x-tries", "kafka_dlt-original-topic",
          "kafka_dlt-original-consumer-group", "x-source-topic"]  # fmt: skip
_NAMES = st.one_of(_TEXT, st.sampled_from(_KNOWN))


@given(
    st.lists(st.lists(st.tuples(_NAMES, _BYTES), max_size=6), max_size=4),
    st.sampled_from(["shop.DLT", "true-dlq", "1.5.DLT", "tasks.DLT", "on", "-dlt", "..dlq"]),
)
def test_whatever_letters_say_the_file_can_be_used(letters: list[list[tuple[str, bytes]]], topic: str) -> None:
    groups = {value.decode(errors="replace") for letter in letters for _, value in letter}
    there = {topic: 1, "shop": 1, "origin": 1}
    known = Known(there, {"shop": groups}, groups)
    seen_topic = describe_seen(topic, *letters, known=known)  # type: ignore[arg-type]
    registry, text = write_and_read([seen_topic], there)
    if seen_topic and seen_topic.attached:
        assert registry.reads_topic(topic)
    assert all(line.isprintable() for line in text.split("\n"))


def test_what_no_retry_mends_is_parked_by_a_rule_and_of_what_is_missing_a_person_is_asked() -> None:
    classes = [
        b"org.apache.kafka.common.errors.SerializationException", b"com.acme.*[x]ValidationException", b"com.acme.OrderNotFound",
        b"java.net.SocketTimeoutException", b"java.lang.ClassNotFoundException", b"psycopg.errors.SerializationFailure",
    ]  # fmt: skip
    letters = [[("kafka_dlt-original-topic", b"shop.orders"), ("kafka_dlt-exception-fqcn", name)] for name in classes]
    found = describe_seen("shop.orders.DLT", *letters)
    registry, text = write_and_read([found])
    questions = [line for line in one(found).questions if "come later" in line]
    assert questions == [
        "does what was not there come later (com.acme.OrderNotFound)? If it never does, add the name to a rule that parks"
    ]
    route = registry.route("shop.orders.DLT")
    assert [name for name in classes if plan_for(route, name.decode()).park] == classes[:2]
    assert text.count("park: true") == 1


def test_a_name_of_an_exception_that_does_not_print_is_in_no_rule() -> None:
    found = describe_seen("shop.orders.DLT", [("kafka_dlt-exception-fqcn", "x\u2028ValidationException".encode())])
    _, text = write_and_read([found])
    assert "park: true" not in text
