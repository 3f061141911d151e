"""A stack trace of Java, Python, JavaScript or .NET as people read it: the root cause first, and calls of libraries folded.

Formats: `Throwable.printStackTrace` of Java, `traceback.format_exception` of Python, `error.stack` of V8, `Exception.ToString` of
.NET. Whatever else it is stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

_LINES_MAX, _TITLE_CHARS_MAX, _NAMED_MAX = 5_000, 2_000, 3
_PYTHON = "Traceback (most recent call last):"
_PYTHON_AFTER = re.compile(
    r"\n(?:The above exception was the direct cause of|During handling of the above exception, another)[^\n]*\n"
)
_PYTHON_CALL = re.compile(r'^\s*File "(?P<file>[^"]*)", line \d+')
_CALL = re.compile(r"^\s*at (?P<call>.+)$")
# As many more as the exception has that this one was wrapped in, or the end of a part of a .NET trace.
_ENDS = re.compile(r"^\s*(?:\.\.\. \d+ (?:more|common frames omitted)|--- End of .* ---)\s*$")
_CAUSE = re.compile(r"^(?:Caused by: |\s*---> |\s*\[cause\]: )(?P<title>.*)$")
_SUPPRESSED = re.compile(r"^\s+Suppressed: ")
_CLASS = re.compile(r"^(?:[\w.-]+(?:@[\w.+-]+)?//?)?(?P<package>(?:[a-z_][\w$]*\.)+)")
_LIBRARIES = (
    "java.", "javax.", "jakarta.", "jdk.", "sun.", "com.sun.", "kotlin.", "kotlinx.", "scala.", "groovy.", "org.springframework.",
    "org.apache.", "org.hibernate.", "org.postgresql.", "com.mysql.", "com.mongodb.", "com.zaxxer.", "com.fasterxml.",
    "com.google.", "io.netty.", "io.smallrye.", "io.quarkus.", "io.vertx.", "io.confluent.", "io.micrometer.",
    "io.opentelemetry.", "io.grpc.", "io.micronaut.", "io.debezium.", "reactor.", "rx.", "io.reactivex.", "okhttp3.",
    "retrofit2.", "feign.",
    "ch.qos.", "org.slf4j.", "net.bytebuddy.", "org.jboss.", "org.eclipse.", "akka.", "org.aspectj.", "software.amazon.",
    "System.", "Microsoft.", "MassTransit.", "Confluent.", "Npgsql.", "Newtonsoft.", "Polly.", "NServiceBus.",
)  # fmt: skip
_LIBRARY_FILES = re.compile(
    r"node_modules/|node:|\binternal/|site-packages/|dist-packages/|/lib(?:64)?/python3|<frozen |\bnative\b|<anonymous>$"
)
_PACKAGE = re.compile(r"(?:node_modules|site-packages|dist-packages)/([@\w.-]+)|\bnode:")


class Calls(NamedTuple):
    """Calls that follow each other and are all of libraries, or all not.

    Attributes:
      lines: as they were written, without the blanks before them.
      libraries: the packages that they are of, three at most; empty where they are of the service that failed.
    """

    is_own: bool
    lines: Sequence[str]
    libraries: Sequence[str] = ()


class ThrownError(NamedTuple):
    """One exception of a stack trace.

    Attributes:
      title: its class and what it says.
      calls: from where it was thrown on; in Python the other way round, as its users know it.
    """

    title: str
    calls: Sequence[Calls]


def parse_stack_trace(text: str) -> list[ThrownError]:
    """Parse a stack trace into its exceptions, the root cause first; empty where the text is in no known format.

    >>> found = parse_stack_trace('''a.Wrapped: no
    ...     at a.b.Shop.sell(Shop.java:3)
    ... Caused by: a.Refused: the bank says no
    ...     at java.base/java.net.Socket.connect(Socket.java:9)
    ...     at a.b.Bank.ask(Bank.java:7)
    ...     ... 1 more''')
    >>> [(error.title, [(calls.is_own, len(calls.lines)) for calls in error.calls]) for error in found]
    [('a.Refused: the bank says no', [(False, 1), (True, 1)]), ('a.Wrapped: no', [(True, 1)])]
    """
    text = text.replace("\r\n", "\n")
    found = _parse_python(text) if _PYTHON in text else list(_parse_sections(text.split("\n")[:_LINES_MAX]))
    return found if any(error.calls for error in found) else []


def _parse_python(text: str) -> list[ThrownError]:
    """The exceptions of a Python traceback, in which the root cause comes first."""
    found: list[ThrownError] = []
    for part in _PYTHON_AFTER.split(text):
        calls: list[tuple[bool, str]] = []
        lines = part.partition(_PYTHON)[2].split("\n")[1 : _LINES_MAX + 1]
        for n, line in enumerate(lines):
            if call := _PYTHON_CALL.match(line):
                calls.append((not _LIBRARY_FILES.search(call["file"]), line.strip()))
            elif line.startswith((" ", "\t")) and calls:
                is_own, written = calls[-1]
                calls[-1] = is_own, f"{written}\n    {line.strip()}"
            elif line:
                found.append(_build_error("\n".join(lines[n:]), calls))
                break
    return found


def _parse_sections(lines: Sequence[str]) -> Iterator[ThrownError]:
    """The exceptions of a trace in which each is followed by its calls, and then by its cause: the last one is the root."""
    sections: list[tuple[list[str], list[tuple[bool, str]]]] = [([], [])]
    # Those of .NET whose own calls come only after the end of their cause's.
    unfinished: list[int] = []
    at = 0
    for line in lines:
        title, calls = sections[at]
        if cause := _CAUSE.match(line):
            unfinished.append(at)
            sections.append(([cause["title"]], []))
            at = len(sections) - 1
        elif call := _CALL.match(line):
            calls.append((_is_own(call["call"]), line.strip()))
        elif _ENDS.match(line):
            if "End of" in line and unfinished:
                at = unfinished.pop()
        elif not calls:
            title.append(line)
        elif _SUPPRESSED.match(line):
            calls.append((False, line.strip()))
    for title, calls in reversed(sections):
        yield _build_error("\n".join(title), calls)


def _build_error(title: str, calls: Sequence[tuple[bool, str]]) -> ThrownError:
    grouped = [(is_own, [line for _, line in some]) for is_own, some in groupby(calls, key=lambda call: call[0])]
    parts = [Calls(is_own, lines, () if is_own else _name_libraries(lines)) for is_own, lines in grouped]
    return ThrownError(title.strip()[:_TITLE_CHARS_MAX], parts)


def _is_own(call: str) -> bool:
    """Whether a call is of the service that failed, as far as names tell."""
    name = call.partition("(")[0]
    # A module and its version may stand before the class: `java.base/java.net.Socket`, `app//com.acme.Shop`.
    of_class = name.rpartition("/")[2] if "(" in call and "node_modules" not in call else name
    return not (of_class.startswith(_LIBRARIES) or _LIBRARY_FILES.search(call))


def _name_libraries(lines: Sequence[str]) -> list[str]:
    """The packages that calls are of, two parts of each name, three packages at most."""
    found: dict[str, None] = {}
    for line in lines:
        if place := _PACKAGE.search(line):
            found.setdefault(place[1] or "node")
        elif named := _CLASS.match(line.removeprefix("at ")):
            found.setdefault(".".join(named["package"].split(".")[:2]).rstrip("."))
    return list(found)[:_NAMED_MAX]
