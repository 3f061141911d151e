"""The fold of one changelog partition, in due order: on disk (`rocks`, the only importer of rocksdict) or in memory."""
