"""Which files of a Parquet set count: the list that Spark's file sink keeps in the set's `_spark_metadata`.

Each batch of a stream adds a file to the list, named by the batch's number, with a line for each file that it wrote. Every
tenth is called `<number>.compact` and repeats what came before: Spark goes on from the last of these and never looks at an
older one again. So whoever replaces the last one, in one step, changes which files count for everybody who reads the set with
Spark, and for the batches that follow.
"""

from __future__ import annotations

import json
import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from retry.errors import RetryError

_VERSION = "v1"
_BATCH = re.compile(r"([0-9]+)(\.compact)?\Z")
# File systems on which a rename over a file is no single step: there a file is seen when all of it was written, and at once.
_WHOLE_OR_NOT = "fs.capability.outputstream.abortable"
# Where Hadoop renames over a file in one step. On all others it deletes that file first, on local ones too.
_RENAMES_OVER, _LOCAL = ("hdfs",), "file"


class Listed(NamedTuple):
    """A file that counts: its `name` from the set's folder on, `day=…/team=…/part-….parquet`, and the `line` that lists it."""

    name: str
    bytes: int
    modified_ms: int
    line: str


class Whole(NamedTuple):
    """The last `<number>.compact` of a list."""

    batch: int
    modified_ms: int
    files: list[Listed]


class FileList:
    """The list of one set, which a stream may go on to write to; and the files that there are, listed or not."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm: Any = spark._jvm
        session: Any = spark._jsparkSession
        self._hadoop, self._io = jvm.org.apache.hadoop.fs, jvm.org.apache.commons.io.IOUtils
        self._new_array = spark.sparkContext._gateway.new_array  # type: ignore[union-attr]
        self._conf = session.sessionState().newHadoopConf()
        self._root = self._hadoop.Path(folder)
        self._fs = self._root.getFileSystem(self._conf)
        self._is_local = self._fs.getScheme() == _LOCAL
        self._folder = self._hadoop.Path(self._root, "_spark_metadata")

    def latest(self) -> int:
        """Find the last batch that was listed; -1 where there was none."""
        return max((batch for batch, _, _ in self._list_batch_files()), default=-1)

    def find_whole_list(self) -> Whole | None:
        """Read the last file of the list that repeats all before it; None where there were not ten batches yet."""
        found = {batch: status for batch, is_whole, status in self._list_batch_files() if is_whole}
        if not found:
            return None
        batch = max(found)
        return Whole(batch, found[batch].getModificationTime(), self._read(found[batch].getPath()))

    def since(self, batch: int) -> set[str]:
        later = [status for number, _, status in self._list_batch_files() if number > batch]
        return {each.name for status in later for each in self._read(status.getPath())}

    def replace(self, whole: Whole, files: list[str]) -> None:
        """Write the lines of `files` in place of those listed, in one step; raises Py4JError or OSError, and all is as before."""
        path = self._hadoop.Path(self._folder, f"{whole.batch}.compact")
        text = bytearray("\n".join([_VERSION, *files]).encode())
        if self._fs.hasPathCapability(path, _WHOLE_OR_NOT):
            self._write(self._fs, path, text)
            return
        made = self._hadoop.Path(self._folder, f".{whole.batch}.{uuid.uuid4().hex}.tmp")
        if self._is_local:
            self._write(self._fs.getRawFileSystem(), made, text)
            self._forget_checksum(whole.batch)
            Path(made.toUri().getPath()).replace(path.toUri().getPath())
            return
        self._write(self._fs, made, text)
        over = self._new_array(self._hadoop.Options.Rename, 1)
        over[0] = self._hadoop.Options.Rename.OVERWRITE
        self._hadoop.FileContext.getFileContext(path.toUri(), self._conf).rename(made, path, over)

    def demand_one_step(self) -> None:
        """Raise RetryError where no way is known to replace the list in one step on this file system."""
        scheme = self._fs.getScheme()
        if not (self._is_local or scheme in _RENAMES_OVER or self._fs.hasPathCapability(self._folder, _WHOLE_OR_NOT)):
            raise RetryError(f"on {scheme} no list can be replaced in one step: compact works on local disks, HDFS and S3A")

    def list_present(self, below: str = "") -> dict[str, int]:
        """List when each Parquet file was last modified (ms), by file name; empty where there is no folder.

        Files are those in the day folders of the set, or of a folder `below` the set's.
        """
        root = self._hadoop.Path(self._root, below) if below else self._root
        if not self._fs.exists(root):
            return {}
        days = [each.getPath() for each in self._fs.listStatus(root) if each.getPath().getName().startswith("day=")]
        found = {}
        for status in (status for day in days for status in self._files(day)):
            name = _extract_file_name(status.getPath().toUri().toString())
            if name.endswith(".parquet"):
                found[name] = status.getModificationTime()
        return found

    def within(self, folders: Iterable[str]) -> set[str]:
        paths = [(folder, self._hadoop.Path(self._root, folder)) for folder in folders]
        there = [(folder, path) for folder, path in paths if self._fs.exists(path)]
        return {f"{folder}/{each.getPath().getName()}" for folder, path in there for each in self._fs.listStatus(path)}

    def move_file(self, below: str, name: str, new: str) -> str:
        """Move a file from a folder below the set's to where it belongs; gives the line that lists it."""
        to = self._hadoop.Path(self._root, new)
        self._fs.mkdirs(to.getParent())
        if not self._fs.rename(self._hadoop.Path(self._root, f"{below}/{name}"), to):
            raise RetryError(f"{to} cannot be written")
        status = self._fs.getFileStatus(to)
        return json.dumps({
            "path": status.getPath().toUri().toString(), "size": status.getLen(), "isDir": False,
            "modificationTime": status.getModificationTime(), "blockReplication": status.getReplication(),
            "blockSize": status.getBlockSize(), "action": "add",
        }, separators=(",", ":"))  # fmt: skip

    def delete(self, name: str) -> None:
        self._fs.delete(self._hadoop.Path(self._root, name), True)

    def folders(self, below: str) -> dict[str, int]:
        """List for each folder `below` the set's when its newest file was modified (ms); for an empty folder, its own time.

        Not when folders were: object stores have none, and say `now` of each.
        """
        root = self._hadoop.Path(self._root, below)
        found = self._fs.listStatus(root) if self._fs.exists(root) else []
        return {posixpath.join(below, each.getPath().getName()): self._newest_ms(each) for each in found}

    def _newest_ms(self, status: Any) -> int:
        return max((file.getModificationTime() for file in self._files(status.getPath())), default=status.getModificationTime())

    def _files(self, folder: Any) -> Iterator[Any]:
        """List all files below a folder.

        An object store lists them all at once. Of local ones Hadoop then asks for owners, and starts a process for each.
        """
        if not self._is_local:
            found = self._fs.listFiles(folder, True)
            while found.hasNext():
                yield found.next()
            return
        for status in self._fs.listStatus(folder):
            if status.isDirectory():
                yield from self._files(status.getPath())
            else:
                yield status

    def _list_batch_files(self) -> list[tuple[int, bool, Any]]:
        found = self._fs.listStatus(self._folder) if self._fs.exists(self._folder) else []
        named = [(_BATCH.match(status.getPath().getName()), status) for status in found]
        return [(int(match[1]), match[2] is not None, status) for match, status in named if match]

    def _read(self, path: Any) -> list[Listed]:
        stream = self._fs.open(path)
        try:
            version, *lines = self._io.toString(stream, "UTF-8").splitlines()
        finally:
            stream.close()
        if version != _VERSION:
            raise RetryError(f"{path.toString()} is of {version}, and this version of Spark writes {_VERSION}")
        return [_parse_line(line) for line in lines if line]

    def _forget_checksum(self, batch: int) -> None:
        """Hadoop keeps a checksum beside each local file, and the two cannot be renamed at once: it does without for this one."""
        self._fs.getRawFileSystem().delete(self._hadoop.Path(self._folder, f".{batch}.compact.crc"), False)

    def _write(self, fs: Any, path: Any, text: bytearray) -> None:
        stream = fs.create(path, True)
        try:
            stream.write(text)
        finally:
            stream.close()


def _parse_line(line: str) -> Listed:
    entry = json.loads(line)
    return Listed(_extract_file_name(entry["path"]), entry["size"], entry["modificationTime"], line)


def _extract_file_name(uri: str) -> str:
    """Within the set: it may have been moved since it was listed, and a set is parted by days first."""
    return unquote(uri[uri.rindex("/day=") + 1 :])
