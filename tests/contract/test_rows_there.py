"""Which keys have rows, asked for many at a time: on real RocksDB, among deleted rows and rows of other keys."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from retry.delay_queue.table.rocksdb import Database, Memory, new_batch

KEYS = st.integers(0, 40).map(lambda n: b"key %02d" % n)


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=60), st.lists(KEYS, unique=True, max_size=30), st.booleans())
def test_those_that_were_put_and_not_deleted_since(told: list[tuple[bytes, bool]], asked: list[bytes], flushed: bool) -> None:
    with TemporaryDirectory() as folder:
        db, model = Database(Path(folder) / "rows", Memory(1 << 20)), set[bytes]()
        for n, (key, put) in enumerate(told):
            batch = new_batch()
            if put:
                batch.put(key, b"value")
                model.add(key)
            else:
                batch.delete(key)
                model.discard(key)
            db.write(batch)
            if flushed and n == len(told) // 2:
                db.flush()
        assert db.find_present(asked) == sorted(model & set(asked))
        db.close()
