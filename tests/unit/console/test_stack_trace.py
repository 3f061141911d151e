"""Stack traces as people read them: in four languages the root cause comes first, own calls are seen, and libraries folded."""

from __future__ import annotations

import json
import traceback

import pytest

from retry.console.web.stack_trace import Calls, ThrownError, parse_stack_trace
from retry.dead_letters.frameworks import header_values
from retry.dead_letters.frameworks.detection import DIALECTS
from retry.dead_letters.retry_headers import find_stack_header

SPRING = """org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed
\tat org.springframework.kafka.listener.Adapter.invoke(Adapter.java:12)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\tSuppressed: org.springframework.Restored: here
\t\tat org.springframework.kafka.listener.Adapter.check(Adapter.java:30)
Caused by: com.acme.pay.GatewayTimeout: POST https://bank.example: no answer
within 2764 ms
\tat java.net.http/jdk.internal.net.http.HttpClientImpl.send(HttpClientImpl.java:9)
\tat app//com.acme.pay.Gateway.capture(Gateway.java:88) ~[app.jar:1.2]
\tat com.acme.pay.Checkout$Step.pay(Checkout.java:41)
\tat org.springframework.aop.Proxy.proceed(Proxy.java:7)
\t... 14 common frames omitted
"""
DOTNET = """System.AggregateException: One or more errors occurred.
 ---> Acme.Pay.Refused: card expired
   at Acme.Pay.Bank.Capture(String order) in /src/Bank.cs:line 9
   at System.Threading.Tasks.Task.Execute()
   --- End of inner exception stack trace ---
   at System.Threading.Tasks.Task.Wait()
   at Acme.Pay.Worker.Run() in /src/Worker.cs:line 5
"""
NODE = """Error: capture failed
    at capture (/app/src/bank.js:9:11)
    at async Runner.each (/app/node_modules/kafkajs/src/consumer/runner.js:1:2)
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)
  [cause]: TypeError: order is undefined
      at parse (/app/src/order.js:3:1)
"""


def outline(errors: list[ThrownError]) -> list[tuple[str, list[tuple[bool, int, list[str]]]]]:
    """The first line of each exception, and its calls: whether they are own, how many, and of which libraries."""
    return [
        (error.title.splitlines()[0], [(calls.is_own, len(calls.lines), list(calls.libraries)) for calls in error.calls])
        for error in errors
    ]


def test_a_trace_of_java_begins_with_its_root_cause() -> None:
    found = parse_stack_trace(SPRING)
    assert outline(found) == [
        ("com.acme.pay.GatewayTimeout: POST https://bank.example: no answer",
         [(False, 1, ["jdk.internal"]), (True, 2, []), (False, 1, ["org.springframework"])]),
        ("org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed",
         [(False, 4, ["org.springframework", "java.lang"])]),
    ]  # fmt: skip
    assert found[0].title.endswith("\nwithin 2764 ms")
    assert found[0].calls[1] == Calls(True, [
        "at app//com.acme.pay.Gateway.capture(Gateway.java:88) ~[app.jar:1.2]",
        "at com.acme.pay.Checkout$Step.pay(Checkout.java:41)",
    ])  # fmt: skip
    assert parse_stack_trace(SPRING.replace("\n", "\r\n")) == found


def test_a_trace_of_dotnet_gives_each_exception_its_own_calls() -> None:
    assert outline(parse_stack_trace(DOTNET)) == [
        ("Acme.Pay.Refused: card expired", [(True, 1, []), (False, 1, [])]),
        ("System.AggregateException: One or more errors occurred.", [(False, 1, []), (True, 1, [])]),
    ]


def test_a_trace_of_javascript_folds_what_node_and_packages_call() -> None:
    assert outline(parse_stack_trace(NODE)) == [
        ("TypeError: order is undefined", [(True, 1, [])]),
        ("Error: capture failed", [(True, 1, []), (False, 2, ["kafkajs", "node"])]),
    ]  # fmt: skip


def test_a_traceback_of_python_keeps_the_order_that_its_users_know() -> None:
    try:
        try:
            json.loads("{")
        except ValueError as error:
            raise KeyError("order") from error
    except KeyError as error:
        text = "".join(traceback.format_exception(error))
    found = parse_stack_trace(text)
    assert [error.title.partition(":")[0] for error in found] == ["json.decoder.JSONDecodeError", "KeyError"]
    own, libraries = found[0].calls
    assert (own.is_own, libraries.is_own, len(libraries.lines)) == (True, False, 3)
    assert 'json.loads("{")' in own.lines[0]


@pytest.mark.parametrize("text", ["", "no trace at all", "Caused by: nothing", "goroutine 1 [running]:\nmain.main()\n\ta.go:3"])
def test_what_is_in_no_known_format_is_left_as_it_is(text: str) -> None:
    assert parse_stack_trace(text) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", [
    "\n", " ", "at ", "\nat ", "a.", "Caused by: ", "\n ---> ", "Traceback (most recent call last):\n", '  File "',
])  # fmt: skip
def test_hostile_text_takes_no_longer_than_it_is_long(part: str) -> None:
    parse_stack_trace(part * ((256 << 10) // len(part)))


def test_the_header_with_the_trace_is_found_whatever_its_framework_calls_it() -> None:
    roots = (header_values.find_java_root, header_values.find_dotnet_root)
    traced = {at.header for dialect in DIALECTS for at in dialect.cause if at.read in roots}
    assert {"kafka_dlt-exception-stacktrace", "exception-stack"} <= traced
    for name in (*traced, "MT-Fault-StackTrace", "dlq-stack", "error_stack", "python.traceback"):
        assert find_stack_header([("a", b"b"), (name, b"trace")]) == (name, b"trace")
    assert find_stack_header([("stacktrace-count", b"1"), ("kafka_dlt-exception-stacktrace", None)]) is None
    assert find_stack_header([("haystack", b"hay"), ("stacked", b"1")]) is None
