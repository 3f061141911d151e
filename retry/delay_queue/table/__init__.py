"""The fold of one changelog partition, in due order: on disk (`rocks`; `database` alone imports rocksdict) or in memory."""
