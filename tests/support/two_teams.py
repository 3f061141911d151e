"""A deployment of two teams, each with topics of its own, and records that one forges in the name of the other."""

from __future__ import annotations

from pathlib import Path

from retry.clock import wall_ms
from retry.dead_letters import retry_headers as names
from retry.record import Headers
from tests.support.deployment import APPEND_TIME, Deployment
from tests.support.letters import Letter, Sender

LINEAGE = b"%016x" % 7


class TwoTeams(Deployment):
    """Teams `a` and `b`: letters of `<app>.a.DLT` are retried to `<app>.a.retry` and parked in `<app>.a.parked`, `b` alike."""

    def __init__(self, bootstrap_servers: str, folder: Path, **options: object) -> None:
        super().__init__(bootstrap_servers, folder, {}, **options)  # type: ignore[arg-type]
        for name, config in (("DLT", {}), ("parked", {}), ("retry", APPEND_TIME)):
            self.create({self.topic(team, name): (1, config) for team in "ab"})

    def _policies(self, defaults: str, topic_keys: str) -> str:
        def team(name: str) -> str:
            topics = ", ".join(
                f"{key}: {self.app_id}.{name}.{topic}"
                for key, topic in (("dead_letters", "DLT"), ("retry_to", "retry"), ("park_to", "parked"))
            )
            return f"  {name}:\n    topics:\n      - {{{topics}{topic_keys}}}\n"

        return f"defaults: {defaults}\nteams:\n{team('a')}{team('b')}"

    def topic(self, team: str, name: str) -> str:
        """One of a team's topics: `DLT`, `retry` or `parked`."""
        return f"{self.app_id}.{team}.{name}"

    def send_letter(self, team: str, value: bytes = b"as it failed", key: bytes = b"k") -> Letter:
        """A letter on a team's dead-letter topic."""
        sender = Sender(self.bootstrap_servers)
        sender.send(self.topic(team, "DLT"), key, value, [("tenant", b"t")])
        (sent,) = sender.finish().values()
        return sent

    def forge(
        self, topic: str, source: str, value: bytes | None, headers: Headers = (), key: bytes = b"k", policy: str = "a/a.DLT"
    ) -> str:
        """A record that says that it is a letter which the service parked there; gives its place."""
        sender = Sender(self.bootstrap_servers)
        sender.send(topic, key, value, [*headers, *forged_headers(source, policy)])
        (sent,) = sender.finish().values()
        return sent.source


def forged_headers(source: str, policy: str) -> Headers:
    """Make the headers that the service writes of a letter that it parks, written by somebody else."""
    now_ms = b"%d" % wall_ms()
    ours = names.make_retry_headers(LINEAGE, b"1", source.encode(), now_ms, policy.encode(), now_ms)
    return [*ours, (names.PARKED_REASON, b"max_attempts")]
