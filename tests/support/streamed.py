"""A set of letters as a stream of Spark leaves it after many batches, without Kafka: its own file sink, a file a batch."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAYS = ("2026-06-01", "2026-06-02")


class Streamed:
    """Letters of two days, streamed into `data`; each has an id of its own."""

    FOLDERS = 2 * len(_DAYS)

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.data, self._source, self._folder = spark, folder / "data", folder / "source", folder
        self._written = 0

    def write(self, *, batches: int, teams: Sequence[str] = ("a", "b"), without: str = "", more: str = "") -> None:
        """So many batches more, each with a letter of each day and team."""
        from pyspark.sql import functions as F  # noqa: N812 what every Spark programmer reads

        from retry.analytics.schemas import LETTER, lay_out_rows

        for _ in range(batches):
            rows = [{"day": day, "team": team, "id": uuid.uuid4().hex} for day in _DAYS for team in teams]
            self._source.mkdir(parents=True, exist_ok=True)
            (self._source / f"{self._written:06}.json").write_text("\n".join(map(json.dumps, rows)))
            self._written += 1
        read = self.spark.readStream.schema("day date, team string, id string").option("maxFilesPerTrigger", 1)
        letters = read.json(str(self._source))
        texts = [field.name for field in LETTER.fields if field.dataType.typeName() == "string"]
        known = F.lit(None if without else "known").cast("string")
        own = [known.alias(name) for name in (*texts, more) if name and name not in ("team", "id", without)]
        query = (
            lay_out_rows(letters.select("*", *own)).repartition(1)
            .writeStream.format("parquet")
            .option("path", str(self.data / "letters"))
            .option("checkpointLocation", str(self.data / "_checkpoints" / "letters"))
            .partitionBy("day", "team")
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        query.awaitTermination()

    def rows(self) -> Counter[str]:
        """How often each letter is there."""
        from retry.analytics import datasets

        found = datasets.read_set(self.spark, str(self.data), datasets.LETTERS).select("id").collect()
        return Counter(row["id"] for row in found)

    def counting(self) -> list[str]:
        """The files that Spark reads of the set, by name."""
        files = self.spark.read.parquet(str(self.data / "letters")).inputFiles()
        return sorted(unquote(file[file.rindex("/day=") + 1 :]) for file in files)

    def present(self) -> list[str]:
        """The files that there are."""
        return sorted(str(file.relative_to(self.data / "letters")) for file in (self.data / "letters").glob("day=*/*/*.parquet"))

    def folders(self, day: str) -> set[str]:
        """Folders of a day's teams."""
        return {folder.name for folder in (self.data / "letters" / day).iterdir() if folder.is_dir()}

    def delete_day(self, day: str) -> Counter[str]:
        """Delete a day as users may; the letters that are gone."""
        before = self.rows()
        shutil.rmtree(self.data / "letters" / f"day={day}")
        return before - self.rows()

    def age(self, by_ms: int) -> None:
        """Make all files older, and what the list says of merged ones as well."""
        for file in (self.data / "letters").rglob("*"):
            if file.is_file():
                moment_s = file.stat().st_mtime - by_ms / 1_000
                os.utime(file, (moment_s, moment_s))
        for listed in (self.data / "letters" / "_spark_metadata").glob("*.compact"):
            version, *lines = listed.read_text().splitlines()
            entries = [json.loads(line) for line in lines]
            text = "\n".join(json.dumps(each | {"modificationTime": each["modificationTime"] - by_ms}) for each in entries)
            moment_s = listed.stat().st_mtime
            listed.write_text(f"{version}\n{text}")
            os.utime(listed, (moment_s, moment_s))
            (listed.parent / f".{listed.name}.crc").unlink(missing_ok=True)
