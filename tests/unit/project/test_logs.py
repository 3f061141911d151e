"""Lines of the log: as JSON, from a level on, and not again and again."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from retry import repeated_lines
from retry.dead_letters.retry_headers import make_retry_headers
from retry.delay_queue.envelopes import Entry
from retry.errors import BrokersUnreachable
from retry.process.logs import JsonLine, ToldAtTheEnd, build_logging, configure_logs, tell_end
from retry.repeated_lines import RepeatedLineFilter
from retry.scheduling.messages.settings import build_scheduler_logging, read_scheduler_settings
from retry.telemetry import letter_lines
from tests.unit.project.test_printable import HOSTILE

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def _logs_as_before() -> Any:
    before, hook = logging.root.handlers[:], sys.excepthook
    levels = {name: logging.getLogger(name).level for name in (None, "faust", "mode", "aiohttp", "apprise", "urllib3")}
    yield
    logging.root.handlers[:], sys.excepthook = before, hook
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def make_record(text: str, *arguments: object, level: int = logging.WARNING, **extra: object) -> logging.LogRecord:
    return logging.getLogger("retry.some").makeRecord("retry.some", level, "", 1, text, arguments, None, extra=extra)


def test_a_line_of_json_holds_the_sentence_and_what_it_is_about() -> None:
    line = json.loads(JsonLine().format(make_record("put back: %s", HOSTILE, letter="orders.DLT/0/7", attempt=2)))
    assert line.pop("at").endswith("+00:00")
    assert isinstance(line.pop("process"), int)
    assert line == {
        "level": "WARNING", "logger": "retry.some", "message": "put back: " + HOSTILE.replace("\ud800", r"\ud800"),
        "letter": "orders.DLT/0/7", "attempt": 2,
    }  # fmt: skip


def test_a_line_of_json_is_one_line_that_commands_no_terminal() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("retry", logging.ERROR, "", 1, "%s", (HOSTILE,), sys.exc_info())
    shown = JsonLine().format(record)
    assert shown.isprintable()
    assert "Traceback (most recent call last):\n" in json.loads(shown)["error"]


def test_a_delivered_letter_is_named_with_the_ids_of_its_traces() -> None:
    ours = make_retry_headers(b"4711", b"2", b"orders.DLT/0/7", b"5", b"orders", b"1")
    headers = [("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()), *ours]
    fields = dict(letter_lines.list_fields(Entry("orders.retry", None, b"secret", headers, 1, "orders")))
    assert {len(str(fields.pop("trace_id"))), len(str(fields.pop("span_id")))} == {32, 16}
    assert fields == {
        "team": "orders", "target": "orders.retry", "letter": "orders.DLT/0/7", "retry_id": "4711", "attempt": 2,
        "letter_trace_id": TRACE,
    }  # fmt: skip
    bare = Entry("t", None, None, [("traceparent", b"x"), ("retry-attempt", None)], 1, "orders")
    assert letter_lines.list_fields(bare) == {"team": "orders", "target": "t"}


def test_deliveries_are_logged_at_debug_alone(caplog: pytest.LogCaptureFixture) -> None:
    entry = Entry(
        "orders.retry", None, None, make_retry_headers(b"1", b"1", b"orders.DLT/0/7", b"5", b"orders", b"1"), 1, "orders"
    )
    with caplog.at_level(logging.INFO):
        letter_lines.log_sent([entry])
        assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, "retry.telemetry.letter_lines"):
        letter_lines.log_sent([entry])
    assert "sent orders.DLT/0/7 to orders.retry" in caplog.text


@pytest.mark.usefixtures("_logs_as_before")
def test_a_process_logs_from_its_level_on_and_tells_its_end_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(build_logging("json", "warning"))
    logging.getLogger("retry.some").info("not told")
    logging.getLogger("retry.some").warning("told")
    tell_end("no broker answers")
    try:
        raise ValueError("unforeseen")
    except ValueError:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("WARNING", "told"), ("CRITICAL", "no broker answers"), ("CRITICAL", "cannot go on"),
    ]  # fmt: skip
    assert lines[-1]["error"].endswith("ValueError: unforeseen")


@pytest.mark.usefixtures("_logs_as_before")
def test_text_says_how_many_lines_were_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr(repeated_lines, "monotonic_s", lambda: clock[0])
    configure_logs(build_logging("text", "info"))
    for clock[0] in (1_000.0, 1_005.0, 1_010.0, 1_060.0):
        logging.getLogger("retry.some").warning("brokers were asked in vain: %s", "no answer")
        logging.getLogger("retry.some").info("goes on")
    lines = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in lines if line != "goes on"] == [
        "brokers were asked in vain: no answer", "brokers were asked in vain: no answer (left out: 2 more of these)",
    ]  # fmt: skip
    assert lines.count("goes on") == 4


def test_what_repeats_is_said_after_a_minute_then_every_ten_and_at_once_when_it_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [0.0], list[float]()
    monkeypatch.setattr(repeated_lines, "monotonic_s", lambda: clock[0])
    sparing = RepeatedLineFilter(lambda record: record.getMessage())
    for second in [*range(0, 3_000, 5), *range(3_200, 3_300, 5)]:
        clock[0] = float(second)
        if sparing.filter(make_record("the same")):
            said.append(clock[0])
    assert said == [0, 60, 660, 1_260, 1_860, 2_460, 3_200, 3_260]


def test_memory_of_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(repeated_lines, "monotonic_s", lambda: clock[0])
    sparing = RepeatedLineFilter(lambda record: record.getMessage())
    for n in range(5_000):
        clock[0] = float(n)
        assert sparing.filter(make_record("line %d", n))
    assert len(sparing._lines) <= 1_000


def test_errors_of_two_kinds_under_one_sentence_are_both_told() -> None:
    find = build_logging("text", "info")["filters"]["repeated"]["()"]()._find_key
    one, other = (make_record("a look failed", level=logging.ERROR) for _ in range(2))
    one.exc_info, other.exc_info = (ValueError, ValueError("a"), None), (ValueError, ValueError("b"), None)
    assert find(one) != find(other)
    assert find(make_record("goes on", level=logging.INFO)) is None


def test_sentences_of_frameworks_repeat_whatever_durations_they_measured() -> None:
    find = build_logging("text", "info")["filters"]["repeated"]["()"]()._find_key
    one, other, elsewhere = (make_record("Timer %s is overlapping (interval=%r runtime=%r)", name, 1.0, took_s)
                             for name, took_s in (("sweep", 5.00564978599), ("sweep", 5.0175), ("health", 5.0175)))  # fmt: skip
    assert find(one) == find(other) != find(elsewhere)


def test_what_ends_the_process_is_kept_back_where_it_is_told_in_a_line() -> None:
    record = logging.LogRecord("mode", logging.ERROR, "", 1, "crashed", (), (None, BrokersUnreachable("a:1", "b"), None))
    assert not ToldAtTheEnd().filter(record)


def test_a_scheduler_logs_as_its_own_variable_says_and_else_as_all_others() -> None:
    config = build_scheduler_logging(read_scheduler_settings({"RETRY_LOG_LEVEL": "debug", "RETRY_LOG_FORMAT": "json"}))
    assert (config["root"]["level"], config["formatters"]["line"]["()"]) == ("DEBUG", JsonLine)
    named = read_scheduler_settings({"RETRY_LOG_LEVEL": "debug", "LOG_LEVEL": "error"})
    assert build_scheduler_logging(named)["root"]["level"] == "ERROR"
