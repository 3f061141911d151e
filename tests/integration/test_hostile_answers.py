"""Hosts that answer with far more than an answer: what a call takes of memory is bounded, it fails, and others do not notice."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.calling import call_good_and_bad
from tests.support.hosts import Behaviour, Call, Host

pytestmark = pytest.mark.check

MIB = 1 << 20
# As many as may be under way to one host.
CALLS = 32
FLOOD_BYTES = 50 * MIB
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def flood(head: bytes, part: bytes, tail: bytes) -> Behaviour:
    """A beginning, 50 MiB of one thing, and an end that makes it a valid answer."""
    block = part * max(1, (64 << 10) // len(part))

    async def answer(_call: Call, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(FLOOD_BYTES // len(block)):
            writer.write(block)
            await writer.drain()
        writer.write(tail)

    return answer


HOSTILE: dict[str, Behaviour] = {
    "a header of 50 MiB": flood(OK + b"X: ", b"x", b"\r\n\r\n"),
    "a header of spaces": flood(OK + b"X:", b" ", b"x\r\n\r\n"),
    "a header name of 50 MiB": flood(OK, b"x", b": x\r\n\r\n"),
    "large headers": flood(OK, b"X-A: " + b"b" * 8_000 + b"\r\n", b"\r\n"),
    "small headers": flood(OK, b"X-A: b\r\n", b"\r\n"),
    "folded headers": flood(OK + b"X: a\r\n", b" b\r\n", b"\r\n"),
    "a reason of 50 MiB": flood(b"HTTP/1.1 200 ", b"x", b"\r\n\r\n"),
    "answers that announce another": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"),
    "such ones with headers": flood(b"", b"HTTP/1.1 103 Early Hints\r\n" + b"Link: </a>\r\n" * 100 + b"\r\n", OK + b"\r\n"),
    "empty lines before the answer": flood(b"", b"\r\n", OK + b"Content-Length: 0\r\n\r\n"),
    "a chunk's extension of 50 MiB": flood(CHUNKED + b"1;", b"x", b"\r\nx\r\n0\r\n\r\n"),
    "extensions of chunks": flood(CHUNKED, b"1;" + b"x" * 4_000 + b"\r\nx\r\n", b"0\r\n\r\n"),
    "chunks of a byte": flood(CHUNKED, b"1\r\nx\r\n", b"0\r\n\r\n"),
    "a chunk's size of 50 MiB": flood(CHUNKED, b"0", b"1\r\nx\r\n0\r\n\r\n"),
    "trailers": flood(CHUNKED + b"0\r\n", b"X-A: b\r\n", b"\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_host_that_answers_with_50_mib_beside_the_body_costs_little_memory_and_fails(case: str) -> None:
    with Host() as good, Host(HOSTILE[case]) as bad:
        fine, failed, grown_bytes = call_good_and_bad(good.url, bad.url, CALLS)
    assert fine == [[None, 200]] * (CALLS + 1)
    # Where the head came whole before the flood, its status is kept.
    assert len(failed) == CALLS
    assert [each for each in failed if each not in (["bad_answer", None], ["too_large", 200])] == []
    # Half a mebibyte is what the sockets and one part that is read cost a call.
    assert grown_bytes < 32 * MIB
