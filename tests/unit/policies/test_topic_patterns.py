"""Patterns mean the same to every reader and cannot be made to run for ever."""

from __future__ import annotations

import re
import time

import pytest

from retry.policies.topic_names import find_pattern_fault, find_topic_fault, strip_anchors


@pytest.mark.parametrize(
    "pattern",
    [r"payments\..*\.DLT", r"^payments\..*\.DLT$", r"[a-z0-9-]+\.v[0-9]+\..*", r"(orders|refunds)\.(DLT|dlq)",
     r"a(b)?c", r"(ab)+c", r"v[0-9]{4}[0-9]{2}[0-9]{2}[0-9]{2}", "orders", r"[^.]*\.DLT"],
)  # fmt: skip
def test_what_people_write_is_allowed(pattern):
    assert find_pattern_fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    ["", "^$", "(a", "[a", "a)", "*a", "a{3,1}", "a**", "a*?", "a*+", r"a\d+", r"\w+", "(?:a|b)", "(?i)a", "(?=a)a",
     r"(a)\1", "a^b", "a$b", r"a\$", "a b", "ä", "[[:alpha:]]", r"[\w.]+", "a" * 501, "a{4294967296}"],
)  # fmt: skip
def test_what_readers_disagree_on_is_refused(pattern):
    assert find_pattern_fault(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a*)*", "(a|a)*b", "(a|ab){1,50}", "((a+)b)+", "((a|b))+", "(a?){50}", ".*.*.*.*.*x",
     "a?" * 40 + "a" * 40, "(a|a)" * 40, "(.*)(.*)(.*)(.*)(.*)x"],
)  # fmt: skip
def test_p48_a_catastrophic_pattern_is_refused(pattern):
    assert find_pattern_fault(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["a" + ".*" * 3 + "x", "(a|a)" * 16, "a?" * 16 + "b", "(aa)+(a)+(aaa)+x", "(a|a|a)a*a*a*x", "(a|a)?.*.*b"],
)
def test_the_worst_pattern_that_is_allowed_is_quick(pattern):
    assert find_pattern_fault(pattern) is None
    started_s = time.process_time()
    assert re.compile(strip_anchors(pattern)).fullmatch("a" * 249) is None
    assert time.process_time() - started_s < 5


@pytest.mark.parametrize("pattern", [".*", "_+.*", "[_a-z]+", "__transaction_state"])
def test_a_pattern_that_takes_in_internal_topics_is_refused(pattern):
    assert "internal" in (find_pattern_fault(pattern) or "")


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "a" * 249, "_a", "..."])
def test_topic_names(name):
    assert find_topic_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a\n", "a/b", "^a", "__a", "é", "a\x00"])
def test_what_is_no_topic_name(name):
    assert find_topic_fault(name)
