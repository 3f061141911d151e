"""Spark's classes as Java has them once they are loaded, in a file: with it a session starts in half the time.

To read, check and link ten thousand classes takes longer than a report on few letters. Java can keep the result of that in a
file (application class-data sharing), which `retry analytics prepare` makes. A session uses the file of its Java and its Spark
where there is one. Java compares its own build and the jars with those that the file was made of, and the file with its checksum,
and does without where one differs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyspark

from retry.errors import RetryError
from retry.java import locate_java, read_release
from retry.settings import cache_dir

# Neither what Java cannot keep, nor a file that it does not take, is anything that an operator could mend.
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"
# Java dies of a damaged file that it does not check; to check it takes a tenth of a second.
_USED = f"-Xshare:auto -XX:+VerifySharedSpaces {_SILENT}"


def find_archive() -> Path | None:
    """The file of the present Java and Spark, where one was made and can be read."""
    # A user without a home has no cache, and a file may be deleted meanwhile: a session starts all the same.
    with suppress(OSError, RuntimeError):
        # Its name ends with its size: of a file that was cut off Java would die.
        files = cache_dir().glob(f"{_build_archive_name()}-*.jsa")
        return next((file for file in files if file.stem.endswith(f"-{file.stat().st_size}")), None)
    return None


def java_options() -> str:
    """Options with which Java uses the file, where there is one."""
    file = find_archive()
    return "" if file is None else f'-XX:SharedArchiveFile="{file}" {_USED}'


def create_archive(run: Callable[[str], None]) -> Path:
    """Make the file; `run` starts Java with the options that it is given, loads what is to be kept, and waits for Java's end.

    Raises:
      RetryError: Java has made none.
    """
    began = cache_dir() / f"{_build_archive_name()}.{os.getpid()}"
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        run(f'-XX:ArchiveClassesAtExit="{began}" {_SILENT}')
        if not began.is_file():
            raise RetryError(
                f"Java wrote no classes to {began.parent}, and a session starts without, as before. "
                "Is this a Java of version 17 or later, and may it write there? XDG_CACHE_HOME names another folder"
            )
        return began.rename(cache_dir() / f"{_build_archive_name()}-{began.stat().st_size}.jsa")
    except OSError as error:
        raise RetryError(f"{began.parent} cannot be written: {error.strerror}; name another folder as XDG_CACHE_HOME") from None
    finally:
        with suppress(OSError):
            began.unlink()


def _build_archive_name() -> str:
    java, spark = Path(locate_java() or "java").resolve(), Path(pyspark.__file__).parent
    jars = sorted((jar.name, jar.stat().st_size) for jar in (spark / "jars").glob("*.jar"))
    about = (str(java), read_release(java), str(spark), pyspark.__version__, jars)
    return f"spark-classes-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"
