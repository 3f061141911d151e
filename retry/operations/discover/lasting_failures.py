"""Which kinds of failure no waiting mends, told by the name of an exception's class.

A letter that cannot be read, or that breaks a rule of its content, is the same letter an hour later. What is missing may come,
so of that a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# A longer name, or one that does not print, is none that a rule should hold.
_CHARS_MAX = 249
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
    printable = (name for name in exceptions if name.isprintable() and len(name) <= _CHARS_MAX)
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
