"""Envelopes of task queues, and JSON that only looks like one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.dead_letters.frameworks.task_queues import read_envelope

TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in pay\n    charge()\n    ^^^^^^^^\n'


def celery(**headers: object) -> bytes:
    told = {"id": "3f1c", "task": "shop.pay", **headers}
    return json.dumps({"body": "W10=", "content-type": "application/json", "headers": told, "properties": {}}).encode()


def dramatiq(**options: object) -> dict[str, Any]:
    return read_envelope(
        json.dumps({"queue_name": "default", "actor_name": "pay", "args": [], "options": options, "message_id": "7f"}).encode()
    )


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (3, 4), (-5, 1), (2_147_483_647, 1)])
def test_retries_are_one_less_than_failures(retries: int, attempts: int) -> None:
    assert read_envelope(celery(retries=retries))["attempts"] == attempts
    assert dramatiq(retries=retries)["attempts"] == attempts


def test_what_is_not_told_is_left_out() -> None:
    assert read_envelope(celery()) == {"family": "celery", "stage": "shop.pay"}
    assert dramatiq() == {"family": "dramatiq", "stage": "pay", "origin_topic": "default"}


@pytest.mark.parametrize(
    ("said", "exception"),
    [("ValueError('no')", "ValueError"), ("shop.Declined: no", "shop.Declined"), ("it went wrong", None), (7, None), ("", None)],
)
def test_celery_may_name_an_exception(said: object, exception: str | None) -> None:
    assert read_envelope(celery(exc=said)).get("exception") == exception


@pytest.mark.parametrize(
    ("trace", "exception", "message"),
    [
        (TRACE + "shop.Declined: card declined\n", "shop.Declined", "card declined"),
        (TRACE + "shop.Declined: two\nlines\n", "shop.Declined", "two"),
        (TRACE + "KeyboardInterrupt\n", "KeyboardInterrupt", None),
        (TRACE + "A: x\n\nDuring handling of the above exception, another exception occurred:\n\n" + TRACE + "B: y\n", "B", "y"),
        (TRACE, None, None), ("ValueError: no frame", None, None), (TRACE + "not a class: x", None, None),
    ],
)  # fmt: skip
def test_the_class_follows_the_last_frame(trace: str, exception: str | None, message: str | None) -> None:
    fields = dramatiq(traceback=trace)
    assert (fields["exception"], fields["message"]) == (exception, message)


@pytest.mark.parametrize("queue", ["default.XQ", "default.DQ", "default"])
def test_dead_and_delayed_queues_are_those_of_their_origin(queue: str) -> None:
    value = {"actor_name": "pay", "message_id": "7f", "options": {}, "queue_name": queue}
    assert read_envelope(json.dumps(value, separators=(",", ":")).encode())["origin_topic"] == "default"


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"{", b"[]", b'{"body"', b'{"body":1}', b'{"queue_name":"x"}', celery()[:-1], celery() + b"x", celery(id=7),
        celery(retries="2"), b" " + celery(), b'{"body":' + b"[" * 60_000,
        b'{"body":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        celery(x="y" * 65_536), b'{"body":"\xff\xfe"}', b'{"queue_name":' + b'{"a":' * 10_000,
    ],
)  # fmt: skip
def test_anything_else_is_no_envelope(value: bytes | None) -> None:
    assert read_envelope(value) == {}


@given(st.sampled_from([b'{"body"', b'{"queue_name"', b'{"actor_name"']), st.binary(max_size=60))
def test_no_value_is_refused(start: bytes, rest: bytes) -> None:
    assert isinstance(read_envelope(start + rest), dict)
