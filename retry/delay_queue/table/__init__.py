"""The fold of one changelog partition, in due order: on disk (`rocksdb_table`; `rocksdb` alone imports rocksdict)."""
