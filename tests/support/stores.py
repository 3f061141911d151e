"""File systems of clusters, on loopback and for the time of a block: an object store that speaks S3, and HDFS.

The object store is moto, a stand-in; what Spark uses of Amazon's is real: Hadoop's S3A and Amazon's client. HDFS is Hadoop's own,
a name node and a data node in one process.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.fixtures.capture.running import Root, classpath, jvm
from tests.support.ports import free_port
from tests.support.process import await_that, end
from tests.support.tools import object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop's version is Spark's. It names one jar of all of Amazon's services, of half a gigabyte: here are the ones that it uses.
_HADOOP, _AMAZON = "3.4.1", "2.25.70"
_S3A = ("org.apache.hadoop", "hadoop-aws", _HADOOP)
_CLIENTS: list[Root] = [("software.amazon.awssdk", name, _AMAZON) for name in ("s3", "s3-transfer-manager", "sts", "kms")]
_HDFS: list[Root] = [("org.apache.hadoop", "hadoop-client-minicluster", _HADOOP)]
_IN_SPARK = ("commons-cli-*.jar", "javax.servlet-api-*.jar")
_CLUSTER = "org.apache.hadoop.test.MiniDFSClusterManager"
_START_S, _ASK_S, _END_S = 240.0, 60.0, 30.0


class Store(NamedTuple):
    """One kind of place where a folder may lie.

    Attributes:
      url: of a folder.
      jars: that Spark needs besides its own.
      config: of Spark.
      names: of what lies in a folder, by its path in that of `url`; none where it is not there.
    """

    url: str
    jars: list[str]
    config: dict[str, str]
    names: Callable[[str], set[str]]


@contextmanager
def s3(folder: Path, _: SparkSession) -> Iterator[Store]:
    """A bucket of an object store, through S3A."""
    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen([object_store(), "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        await_that("the object store has a bucket", lambda: _answer(f"{endpoint}/lake", "PUT") is not None, _START_S)

        def names(path: str) -> set[str]:
            found = _answer(f"{endpoint}/lake?list-type=2&delimiter=/&prefix=retry/{path}/")
            assert found is not None
            return {key.rstrip("/").rpartition("/")[2] for key in re.findall("<(?:Key|Prefix)>([^<]+)</", found)}

        config = {"endpoint": endpoint, "endpoint.region": "us-east-1", "path.style.access": "true",
                  "access.key": "me", "secret.key": "mine"}  # fmt: skip
        jars = classpath("s3a", _CLIENTS, alone=[_S3A]).split(":")
        yield Store("s3a://lake/retry", jars, {f"spark.hadoop.fs.s3a.{name}": value for name, value in config.items()}, names)
    finally:
        end(server, _END_S)


@contextmanager
def hdfs(folder: Path, spark: SparkSession) -> Iterator[Store]:
    """A cluster of one machine; asked by the client of a session, since the jar's web server does not answer."""
    package = importlib.util.find_spec("pyspark")
    assert package and package.origin
    own = [str(jar) for pattern in _IN_SPARK for jar in (Path(package.origin).parent / "jars").glob(pattern)]
    url, told = f"hdfs://127.0.0.1:{(port := free_port())}", folder / "hdfs.json"
    arguments = ("-format", "-datanodes", "1", "-nnport", str(port), "-writeDetails", str(told))
    with jvm(":".join([classpath("hdfs", _HDFS), *own]), folder, _CLUSTER, *arguments):
        await_that("HDFS has started", lambda: told.exists() and told.stat().st_size > 0, _START_S)
        java: Any = spark._jvm
        root, conf = java.org.apache.hadoop.fs.Path(f"{url}/"), java.org.apache.hadoop.conf.Configuration()
        system = root.getFileSystem(conf)

        def names(path: str) -> set[str]:
            below = java.org.apache.hadoop.fs.Path(f"{url}/retry/{path}")
            return {each.getPath().getName() for each in system.listStatus(below)} if system.exists(below) else set()

        yield Store(f"{url}/retry", [], {}, names)


def _answer(url: str, method: str = "GET") -> str | None:
    """Ask a URL; None where nobody answers, or not with success."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=_ASK_S) as answer:
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError):
        return None
