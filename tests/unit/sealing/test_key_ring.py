"""What is sealed opens with its key, as it was and where it belongs; and with nothing else."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retry.errors import SealUnopened
from retry.sealing import key_ring
from retry.sealing.key_ring import Sealed
from tests.support.sealed import NEW, OLD, OTHER_OLD, KeyFile
from tests.support.simulated_clock import simulated_clock

CONTENT, BOUND = b"a payload", b"orders.DLT/0/7"


def seal_content(file: KeyFile, content: bytes = CONTENT, bound: bytes = BOUND) -> Sealed:
    found = file.ring.seal(content, bound)
    assert found is not None
    return found


@given(st.binary(max_size=5_000), st.binary(max_size=300))
def test_what_is_sealed_opens_as_it_was(content: bytes, bound: bytes) -> None:
    file = KeyFile(NEW)
    found = seal_content(file, content, bound)
    assert file.ring.open(*found, bound) == content
    assert KeyFile(NEW).ring.open(*found, bound) == content, "another process"
    if len(content) > 8:
        assert content not in b"".join(found[1:])


@given(st.binary(min_size=1, max_size=200), st.integers(0, 1 << 20), st.integers(0, 7), st.sampled_from([1, 2, 3]))
def test_whatever_bit_is_changed_it_does_not_open(content: bytes, at: int, bit: int, part: int) -> None:
    file = KeyFile(NEW)
    found = list(seal_content(file, content))
    changed = bytearray(found[part])  # type: ignore[arg-type]
    changed[at % len(changed)] ^= 1 << bit
    found[part] = bytes(changed)
    with pytest.raises(SealUnopened, match="changed") as refused:
        file.ring.open(*found, BOUND)  # type: ignore[arg-type]
    assert refused.value.key_id == "new"


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_it_opens_only_as_what_it_belongs_to(bound: bytes, other: bytes) -> None:
    file = KeyFile(NEW)
    found = seal_content(file, CONTENT, bound)
    if bound != other:
        with pytest.raises(SealUnopened, match="belongs to something else"):
            file.ring.open(*found, other)


@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, 7, -1])
def test_what_is_cut_short_does_not_open(part: int, size: int) -> None:
    file = KeyFile(NEW)
    found = list(seal_content(file))
    found[part] = found[part][:size]
    with pytest.raises(SealUnopened):
        file.ring.open(*found, BOUND)  # type: ignore[arg-type]


def test_a_key_is_lost_and_found() -> None:
    file = KeyFile(OLD)
    found = seal_content(file)
    file.write(NEW)
    with pytest.raises(SealUnopened, match="sealed under key old, which is not in the file of RETRY_ENCRYPTION_KEYS") as refused:
        file.ring.open(*found, BOUND)
    assert refused.value.key_id == "old"
    file.write(OTHER_OLD)
    with pytest.raises(SealUnopened, match="another key old"):
        file.ring.open(*found, BOUND)
    file.write(NEW, OLD)
    assert file.ring.open(*found, BOUND) == CONTENT


def test_a_new_key_seals_from_then_on_and_the_old_one_still_opens() -> None:
    file = KeyFile(OLD)
    before, generation = seal_content(file), file.ring.generation
    file.write(NEW, OLD)
    after = seal_content(file)
    assert (before[0], after[0]) == ("old", "new")
    assert before[1] != after[1]
    assert file.ring.generation == generation + 1
    assert [file.ring.open(*each, BOUND) for each in (before, after)] == [CONTENT] * 2
    file.write("plain", NEW, OLD)
    assert file.ring.seal(CONTENT, BOUND) is None
    assert file.ring.open(*before, BOUND) == CONTENT
    file.write(NEW)
    assert seal_content(file)[1] != after[1], "a data key does not outlive a change of the file"


def test_no_nonce_comes_twice_under_a_data_key_whatever_threads_seal() -> None:
    file, found = KeyFile(NEW), list[Sealed]()

    def run() -> None:
        found.extend(seal_content(file) for _ in range(2_000))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({wrapped for _, wrapped, _, _ in found}) == 1
    assert len({nonce for _, _, nonce, _ in found}) == len(found) == 8_000


def test_a_data_key_seals_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "_MESSAGES_MAX", 3)
    file = KeyFile(NEW)
    found = [seal_content(file) for _ in range(7)]
    assert list(Counter(wrapped for _, wrapped, _, _ in found).values()) == [3, 3, 1]
    assert len({(wrapped, nonce) for _, wrapped, nonce, _ in found}) == 7


def test_a_data_key_lives_a_day() -> None:
    with simulated_clock() as clock:
        file = KeyFile(NEW)
        first = seal_content(file)
        clock.pause(86_399)
        assert seal_content(file)[1] == first[1]
        clock.pause(2)
        assert seal_content(file)[1] != first[1]


def test_data_keys_that_are_kept_unwrapped_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "_OPENED_MAX", 3)
    reader, found = KeyFile(NEW), [seal_content(KeyFile(NEW)) for _ in range(8)]
    assert [reader.ring.open(*each, BOUND) for each in found * 2] == [CONTENT] * 16
    assert len(reader.ring._opened) == 3


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_only_with_its_key_a_fingerprint_can_be_made_again(content: bytes, other: bytes) -> None:
    file = KeyFile(NEW, OLD)
    (new, old), (foreign,) = file.ring.digests(content), KeyFile(OTHER_OLD).ring.digests(content)
    assert [each.partition(":")[0] for each in (new, old, foreign)] == ["new", "old", "old"]
    assert len({each.partition(":")[2] for each in (new, old, foreign, *file.codec.digests(content)[2:])}) == 4
    assert file.ring.digests(content) == KeyFile(NEW, OLD).ring.digests(content)
    assert (file.ring.digests(other) == [new, old]) == (content == other)


def in_child(step: Callable[[], bytes]) -> bytes:
    """Return what a forked process comes to."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writes, step())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        return pipe.read()


def test_a_forked_process_has_a_data_key_of_its_own() -> None:
    file = KeyFile(NEW)
    before = seal_content(file)
    assert in_child(lambda: seal_content(file)[1]) != before[1] == seal_content(file)[1]
