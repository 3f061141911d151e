"""Calls made by a process of their own, whose memory can be told from that of the hosts: `python -m tests.support.calling`.

Arguments are a URL that is called once, first and last, a URL that is called many times at a time, and how often. Printed are
errors and statuses of all, and by how many bytes the process grew at most while the second URL was called.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys

from retry.http_client.client import Answer, HttpRequest, WebhookClient
from retry.http_client.ssrf_guard import SsrfGuard, parse_allowlist

_TIMEOUT_S = 30.0


def call_good_and_bad(good: str, bad: str, times: int) -> tuple[list[list[object]], list[list[object]], int]:
    """Call a good and a bad URL; return what came of each call as error and status, and the bytes that it took."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.calling", good, bad, str(times)], capture_output=True, text=True, check=True
    )
    good_ones, bad_ones, grown_bytes = json.loads(done.stdout)
    return good_ones, bad_ones, grown_bytes


async def _main(good: str, bad: str, times: int) -> None:
    client = WebhookClient(SsrfGuard(parse_allowlist("127.0.0.0/8")))

    async def call(url: str) -> Answer:
        return await client.call(HttpRequest("t", "POST", url, {}, b"{}", _TIMEOUT_S, "team"))

    # Whatever a process loads at its first calls is loaded then.
    first = await asyncio.gather(*(call(good) for _ in range(times)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    *answers, last = await asyncio.gather(*(call(bad) for _ in range(times)), call(good))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    await client.close()
    print(json.dumps([describe_answers([*first, last]), describe_answers(answers), grown_kib << 10]))


def describe_answers(answers: list[Answer]) -> list[tuple[str | None, int | None]]:
    return [(answer.error, answer.status) for answer in answers]


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
