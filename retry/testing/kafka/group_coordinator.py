"""The coordinator of a consumer group in memory: static members, generations, and partitions that change hands cooperatively.

A round begins when a member joins, leaves or is given up, and ends when every member has reported what it owns; then the
generation rises. What one member is to have while another still owns it, it is given in the next round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from retry.kafka.interface import Partition


class Membership(NamedTuple):
    """A member's proof of membership, which goes into a transaction."""

    group: str
    instance: str
    session: int
    generation: int


@dataclass(slots=True)
class _Seat:
    session: int
    subscription: list[str]
    owned: set[Partition] = field(default_factory=set)
    given: set[Partition] = field(default_factory=set)
    joined: bool = False
    generation: int = -1


class MemoryGroup:
    """Members by instance name, and `partitions`, which lists all there are, of every topic."""

    def __init__(self, name: str, partitions: Callable[[], list[Partition]]) -> None:
        self.name, self.generation, self._partitions = name, 0, partitions
        self._seats: dict[str, _Seat] = {}
        self._sessions = 0
        self._round = False

    def list_instances(self) -> list[str]:
        return list(self._seats)

    def changes(self) -> int:
        """Return a number that grows with every generation, and with every client that enters."""
        return self.generation + self._sessions

    def enter(self, instance: str, subscription: Sequence[str]) -> int:
        """Let a new client take the seat of an instance name; return the number of its session.

        The client keeps what its predecessor was given where both subscribe to the same topics; else a new round begins.
        """
        self._sessions += 1
        before = self._seats.get(instance)
        self._seats[instance] = seat = _Seat(self._sessions, list(subscription))
        if before is None or before.subscription != seat.subscription:
            self.share_out()
        else:
            seat.given = before.given
        return self._sessions

    def expire(self, instance: str) -> None:
        """End the session of a member that has been silent for too long."""
        if self._seats.pop(instance, None) is not None:
            self.share_out()
            self._try_to_end_round()

    def share_out(self) -> None:
        """Begin a round, in which every member reports again what it owns."""
        self._round = True
        for seat in self._seats.values():
            seat.joined = False

    def orphans(self) -> set[Partition]:
        """List partitions that a member subscribes to and none has or was given; empty during a round, which would mend that."""
        return set() if self._round else self._list_subscribed() - {p for s in self._seats.values() for p in s.given | s.owned}

    def heartbeat(
        self, instance: str, session: int, subscription: Sequence[str], owned: Collection[Partition]
    ) -> set[Partition] | None:
        """Take a member's heartbeat; what it is to own if that has changed, else None. Raises LookupError where it is no member.
        """
        seat = self._seats.get(instance)
        if seat is None or seat.session != session:
            raise LookupError(f"{instance} is no member of {self.name} any more")
        if seat.subscription != list(subscription):
            seat.subscription = list(subscription)
            self.share_out()
        if self._round:
            seat.joined, seat.owned = True, set(owned)
            self._try_to_end_round()
        if self._round or seat.generation == self.generation:
            return None
        seat.generation = self.generation
        return set(seat.given)

    def find_membership_error(self, member: Membership) -> str | None:
        """Find why a proof of membership does not count; None where it counts."""
        seat = self._seats.get(member.instance)
        if seat is None or seat.session != member.session:
            return f"{member.instance} is no member of {self.name} any more"
        return f"generation {member.generation} is over" if member.generation != self.generation else None

    def _list_subscribed(self) -> set[Partition]:
        subscriptions = {s for seat in self._seats.values() for s in seat.subscription}
        return {(topic, n) for topic, n in self._partitions() if any(_matches(s, topic) for s in subscriptions)}

    def _try_to_end_round(self) -> None:
        if self._seats and not all(seat.joined for seat in self._seats.values()):
            return
        self._round, self.generation = False, self.generation + 1
        target = self._compute_assignment()
        for name, seat in self._seats.items():
            others = {p for other, seat_of_other in self._seats.items() if other != name for p in seat_of_other.owned}
            seat.given = target[name] - others

    def _compute_assignment(self) -> dict[str, set[Partition]]:
        target: dict[str, set[Partition]] = {name: set() for name in self._seats}
        subscribed = sorted(self._list_subscribed())
        most = -(-len(subscribed) // max(1, len(target)))
        for partition in subscribed:
            owner = next((n for n, seat in self._seats.items() if partition in seat.owned and len(target[n]) < most), None)
            if owner is not None:
                target[owner].add(partition)
        owned = {p for of_member in target.values() for p in of_member}
        for partition in subscribed:
            able = [n for n, seat in sorted(self._seats.items()) if any(_matches(s, partition[0]) for s in seat.subscription)]
            if partition not in owned and able:
                target[min(able, key=lambda n: len(target[n]))].add(partition)
        return target


def _matches(subscribed: str, topic: str) -> bool:
    return bool(re.match(subscribed, topic)) if subscribed.startswith("^") else subscribed == topic
