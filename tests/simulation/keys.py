"""Files of keys, one on each host: changed, lost and found while everything else goes on; and strangers who copy what is sealed.

They draw by themselves, so that a seed in which nothing is sealed goes as if there were no keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from retry.delay_queue.entry_keys import NULLS, PLAIN
from retry.delay_queue.envelope_codec import PLAIN as CLEAR
from retry.delay_queue.envelope_codec import EnvelopeCodec
from retry.errors import SealUnopened
from retry.sealing.key_file import Keys
from retry.sealing.key_ring import KeyRing
from retry.testing.kafka import MemoryTransactionalProducer

if TYPE_CHECKING:
    from tests.simulation.world import World

_IDS = [f"k{n}" for n in range(7)]
_STAND_IN = _IDS[-1]
_ALL = {key_id: hashlib.sha256(key_id.encode()).digest() for key_id in _IDS}
# Whoever watches opens everything.
OBSERVER = EnvelopeCodec(KeyRing(lambda: Keys(_IDS[0], _ALL), look_every_s=0.0))


def opens(key: bytes, envelope: bytes) -> bool:
    """Whether an entry is as somebody has sealed it, and belongs to this key."""
    try:
        OBSERVER.decode(key, envelope)
    except SealUnopened:
        return False
    return True


class KeyFiles:
    """The files of all hosts.

    Attributes:
      on: whether anything is sealed in this run.
      never_plain: whether all that is written is, whoever writes it.
    """

    def __init__(self, world: World, seed: int, hosts: list[str]) -> None:
        self._world, self.random = world, Random(f"keys of {seed}")
        self.on = self.random.random() < 0.4
        self.never_plain = self.on and self.random.random() < 0.7
        self._made = 1
        # By host, the ids in its file, that which seals first; and where the word `plain` stands before them.
        self._files = {host: [_IDS[0]] for host in hosts}
        self._plain: set[str] = set()
        # By letter, what somebody has put in its place, and what was there.
        self._forged: dict[str, tuple[bytes, bytes]] = {}

    def codec(self, host: str) -> EnvelopeCodec:
        """Make the codec of one process of a host."""
        return EnvelopeCodec(KeyRing(self._reading(host), look_every_s=0.0)) if self.on else CLEAR

    def codec_of_operators(self) -> EnvelopeCodec:
        """Seals with the first key."""
        return OBSERVER if self.on else CLEAR

    def _reading(self, host: str) -> Callable[[], Keys]:
        def read() -> Keys:
            ids = self._files[host]
            return Keys(None if host in self._plain else ids[0], {key_id: _ALL[key_id] for key_id in ids})

        return read

    def act(self) -> None:
        """Somebody does something about the keys."""
        drawn = self.random.random()
        if drawn < 0.3:
            self._change()
        elif drawn < 0.55:
            self._lose()
        elif drawn < 0.75:
            self._find(self.random.choice(sorted(self._files)))
        elif drawn < 0.9 or self.never_plain:
            self._forge()
        else:
            self._plain ^= {self.random.choice(sorted(self._files))}
            self._world.fault("sealing switched on or off")

    def _change(self) -> None:
        """A new key, which not all hosts have at the same time."""
        if self._made == len(_IDS) - 1:
            return
        new = _IDS[self._made]
        self._made += 1
        has = [host for host in sorted(self._files) if self.random.random() < 0.7]
        for host in has:
            self._files[host].insert(0, new)
        self._world.fault("key changed", f"{new} on {has}")

    def _lose(self) -> None:
        """A key is away, on one host or on all."""
        key_id = self.random.choice(_IDS[: self._made])
        hosts = sorted(self._files) if self.random.random() < 0.3 else [self.random.choice(sorted(self._files))]
        for host in hosts:
            left = [other for other in self._files[host] if other != key_id]
            # A file without a key is refused, and what was read before goes on to hold: so a key of nobody else.
            self._files[host] = left or [_STAND_IN]
        self._world.fault("key lost", f"{key_id} on {hosts}")

    def _find(self, host: str) -> None:
        known = [*_IDS[: self._made][::-1], _STAND_IN]
        if self._files[host] != known:
            self._files[host] = known
            self._world.fault("key found", host)

    def mend(self) -> None:
        """All hosts have all keys, and what was forged is put right."""
        for host in sorted(self._files):
            self._find(host)
        self._restore()

    def _forge(self) -> None:
        """While all workers are down, a stranger puts what is sealed of one letter in the place of another's."""
        world, ledger = self._world, self._world.ledger
        if world.log.under_way or any(host.process is not None and host.process.busy for host in world.hosts):
            return
        alone = {(record.partition(), record.key()) for record in world.log.read(world.own.changelog)}
        found = {
            source: at for source, at in ledger.waits_at().items() if at[0] in alone
            if at[0][1][0] == PLAIN and not at[0][1].startswith(NULLS) and at[1][1:2] == b"\2" and source not in self._forged
            # Of a topic that was made anew, letters with the same coordinates open in each other's place.
            and " of before" not in source
        }  # fmt: skip
        if len(found) < 2:
            return
        one, other = self.random.sample(sorted(found), 2)
        (place, envelope), (_, foreign) = found[one], found[other]
        self._down()
        self._forged[one] = foreign, envelope
        self._put(*place, foreign)
        world.fault("entry forged", f"{one} is what {other} was")

    def _restore(self) -> None:
        for source, (place, envelope) in sorted(self._world.ledger.waits_at().items()):
            foreign, former = self._forged.get(source, (b"", b""))
            if envelope == foreign:
                self._down()
                self._put(*place, former)
        self._forged.clear()

    def _down(self) -> None:
        """No worker has in mind what stands in the log now: behind its null, what is put would come to life again."""
        for host in self._world.hosts:
            host.crash()
        for transactional_id in list(self._world.log.under_way):
            self._world.log.time_out(transactional_id)

    def _put(self, shard: int, key: bytes, envelope: bytes) -> None:
        log, changelog = self._world.log, self._world.own.changelog
        offset = log.topics[changelog][shard].end
        writer = MemoryTransactionalProducer(log, "stranger")
        writer.open()
        writer.begin()
        writer.write(changelog, shard, [{"key": key, "value": envelope}])
        writer.commit()
        self._world.ledger.changelog[shard].append((offset, key, envelope))
