"""How a row's team names the folder that the row lies in: bounded, safe on every file system, and never the same for two teams.

Spark makes a folder of every value of a column that it partitions by. A team's name may be anything, in records that others
wrote too: longer than a file's name may be, empty, or like another one but for its case. So the column `team` of the Parquet sets
names the folder, and the column `team_name` has the team itself.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

TEAM_NAME = "team_name"
# It begins with a letter and has no upper case, so nothing takes it for a number or a date, and no file system for another one.
# Names with a hash are longer than these, so the two kinds never meet.
_PLAIN = r"^[a-z][a-z0-9_-]{0,62}\z"
_READABLE_CHARS = 24


def folder(team: Column) -> Column:
    """The name of a team's folder: its own where that is short and plain, else what is readable of it and its SHA-256."""
    readable = F.regexp_replace(F.lower(F.substring(team, 1, _READABLE_CHARS)), "[^a-z0-9]+", "-")
    return F.when(team.rlike(_PLAIN), team).otherwise(F.concat(readable, F.lit("-"), F.sha2(team, 256)))


def laid_out(rows: DataFrame) -> DataFrame:
    """Rows of a set as they are written: of those that have a team, `team` names the folder."""
    if "team" not in rows.columns:
        return rows
    return rows.withColumn(TEAM_NAME, F.col("team")).withColumn("team", folder(F.col("team")))


def read_back(written: DataFrame) -> DataFrame:
    """Rows as they were before they were laid out."""
    return written.withColumn("team", F.col(TEAM_NAME))
