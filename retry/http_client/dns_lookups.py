"""Lookups of host names: each in a thread of its own, and teams share out how many are under way.

The machine's resolver answers when it likes, and nobody can end a thread that waits for it. So the threads are counted, and one
team may have at most half of those that no other team has; what finds no room is not begun, and waits where it is.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from concurrent.futures import Future
from functools import lru_cache, partial
from ipaddress import ip_address

from retry.errors import LookupsBusy

_LOOKUPS = 128
# Two name servers that do not answer, and a third that does, take this long with the usual settings of a resolver.
_LOOKUP_S = 10.0


class Lookups:
    """The machine's resolver. Calls to one host at a time share an answer that is under way, and none is kept.

    Args:
      total: threads at a time, at most.
      lookup_s: how long a caller waits for an answer; the thread goes on until the resolver lets go of it.
    """

    def __init__(self, total: int = _LOOKUPS, lookup_s: float = _LOOKUP_S) -> None:
        self._total, self._lookup_s = total, lookup_s
        self._lock = threading.Lock()
        # By host, the team on whose account it is looked up, and the answer.
        self._under_way: dict[str, tuple[str, Future[list[str]]]] = {}
        self._of_team: Counter[str] = Counter()

    def is_crowded(self, team: str, host: str) -> bool:
        """Whether no lookup of a host may begin for a team just now, and none is under way that it could share."""
        with self._lock:
            return self._is_crowded(team) and host not in self._under_way and not _is_address(host)

    async def addresses(self, host: str, team: str) -> list[str]:
        """Look up the addresses of a host.

        Raises:
          LookupsBusy: the team has as many lookups under way as it may; nothing was begun.
          OSError, TimeoutError: the resolver knows none, or does not answer.
        """
        if _is_address(host):
            return [host]
        async with asyncio.timeout(self._lookup_s):
            # One caller's deadline must not take the answer from the others.
            return await asyncio.shield(asyncio.wrap_future(self._ask_resolver(host, team)))

    def _ask_resolver(self, host: str, team: str) -> Future[list[str]]:
        with self._lock:
            if (shared := self._under_way.get(host)) is not None:
                return shared[1]
            if self._is_crowded(team):
                raise LookupsBusy(f"as many lookups of host names are under way for team {team} as may be")
            answer: Future[list[str]] = Future()
            # A daemon: a thread that hangs in the resolver must not keep the process from ending.
            threading.Thread(target=self._run_lookup, args=(host, answer), name="lookup", daemon=True).start()
            self._under_way[host] = team, answer
            self._of_team[team] += 1
            return answer

    def _run_lookup(self, host: str, answer: Future[list[str]]) -> None:
        try:
            say = partial(answer.set_result, _resolve_host(host))
        except Exception as error:
            say = partial(answer.set_exception, error)
        with self._lock:
            team, _ = self._under_way.pop(host)
            self._of_team[team] -= 1
            if not self._of_team[team]:
                del self._of_team[team]
        say()

    def _is_crowded(self, team: str) -> bool:
        return self._of_team[team] >= self._total - len(self._under_way)


def _resolve_host(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@lru_cache(10_000)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
