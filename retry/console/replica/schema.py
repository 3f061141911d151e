"""Tables and indexes of the replica.

| table | a row is |
| --- | --- |
| `about` | what the file is a fold of; see `replica_file` |
| `positions` | a partition, and the offset that is folded next |
| `topics` | a topic that letters or their records lie in, under a number |
| `cells` | what letters have in common, with how many have it, and the group that they count in |
| `letters` | a letter that waits or rests, with what is its own |
| `due_minutes` | how many letters of a team are due in a minute |
| `message_text` | trigrams of messages in lower case, by the letter's id |
| `controls`, `returned` | pauses and actions, by shard; bitmaps of parked letters that were returned |
| `ramp_failed` | the key of a mark that a letter of an action's step failed again |
| `outcome_cells` | what outcomes have in common, and the lane that their retries wait in |
| `outcome_hours` | how many failed in an hour; of retries that were sent in it, and are known, how many there are and came back |
| `outcome_slots` | the same of ten seconds, of retries of which it is not known yet |
| `attempts` | a dead letter of the last days: what was decided, when it left, whether it came back, and as what it was counted |
| `passed` | up to when a consumer group has passed all that was sent to a topic, and when that was seen |
| `audit` | what one transaction of an action did for one team |
| `notes` | the newest record of each key of the notes |

No number of a cell is used again: whoever asks what is new remembers the last one.

A filter asks mostly for what cells have: then letters need not be counted, and those of each cell lie in order.
"""

from __future__ import annotations

import unicodedata

# Another one is rebuilt. Texts are folded by the rules of one version of Unicode, and only then found again.
VERSION = f"1, Unicode {unicodedata.unidata_version}"
APPLICATION_ID = 0x72747279

TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
    topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE topics (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE cells (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, state TEXT NOT NULL, kind TEXT NOT NULL, team TEXT,
    topic TEXT, target TEXT NOT NULL, attempt INTEGER, exception TEXT, thrown TEXT, cause TEXT, common TEXT, fingerprint TEXT,
    consumer_group TEXT, frames TEXT, policy TEXT, reason TEXT,
    group_id TEXT, letters INTEGER NOT NULL DEFAULT 0, first_ms INTEGER, last_ms INTEGER);
CREATE INDEX cells_by_group ON cells (group_id, state);
CREATE TABLE letters (
    id INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE, cell INTEGER NOT NULL, sort INTEGER NOT NULL,
    log INTEGER NOT NULL, log_partition INTEGER NOT NULL, log_offset INTEGER NOT NULL,
    partition INTEGER, "offset" INTEGER, due_ms INTEGER, failed_ms INTEGER, first_failed_ms INTEGER,
    key TEXT, key_bytes BLOB, message TEXT, folded TEXT, lineage TEXT, size INTEGER NOT NULL, action TEXT, label TEXT,
    headers TEXT, ordered TEXT, named TEXT, version TEXT);
CREATE INDEX letters_by_name ON letters (named, version) WHERE named IS NOT NULL;
CREATE INDEX letters_in_order ON letters (ordered) WHERE ordered IS NOT NULL;
CREATE TABLE due_minutes (
    minute INTEGER, team TEXT, letters INTEGER NOT NULL, PRIMARY KEY (minute, team)) WITHOUT ROWID;
CREATE TABLE long_headers (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE controls (shard INTEGER, key BLOB, value BLOB NOT NULL, PRIMARY KEY (shard, key)) WITHOUT ROWID;
CREATE TABLE ramp_failed (mark BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE returned (block BLOB PRIMARY KEY, bitmap BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE outcome_cells (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, team TEXT, topic TEXT, attempt INTEGER, cause TEXT,
    fingerprint TEXT, consumer_group TEXT, target TEXT, lane TEXT NOT NULL, group_id TEXT, first_ms INTEGER, last_ms INTEGER);
CREATE INDEX outcome_cells_by_group ON outcome_cells (group_id);
CREATE TABLE outcome_hours (
    cell INTEGER, hour INTEGER, failed INTEGER NOT NULL, sent INTEGER NOT NULL, came_back INTEGER NOT NULL,
    PRIMARY KEY (cell, hour)) WITHOUT ROWID;
CREATE INDEX outcome_hours_by_time ON outcome_hours (hour);
CREATE TABLE outcome_slots (
    cell INTEGER, slot INTEGER, sent INTEGER NOT NULL, came_back INTEGER NOT NULL, PRIMARY KEY (cell, slot)) WITHOUT ROWID;
CREATE INDEX outcome_slots_by_time ON outcome_slots (slot);
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, lineage TEXT,
    attempt INTEGER, cell INTEGER, team TEXT, failed_ms INTEGER, taken_ms INTEGER, due_ms INTEGER, decision TEXT, reason TEXT,
    left_ms INTEGER, left_for TEXT, lane TEXT, slot INTEGER, came_back INTEGER NOT NULL DEFAULT 0,
    counted_back INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, partition, "offset"));
CREATE TABLE passed (
    consumer_group TEXT, topic TEXT, until_ms INTEGER, at_ms INTEGER NOT NULL, PRIMARY KEY (consumer_group, topic, until_ms)
    ) WITHOUT ROWID;
CREATE INDEX passed_by_time ON passed (at_ms);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, action TEXT NOT NULL, kind TEXT NOT NULL, by TEXT NOT NULL,
    reason TEXT NOT NULL, shard INTEGER NOT NULL, team TEXT, letters INTEGER NOT NULL, done INTEGER NOT NULL,
    results TEXT NOT NULL, examples TEXT NOT NULL, place TEXT NOT NULL);
CREATE INDEX audit_by_time ON audit (at_ms);
CREATE INDEX audit_by_action ON audit (action, at_ms);
CREATE TABLE audit_letters (letter TEXT, audit INTEGER, result TEXT, PRIMARY KEY (letter, audit)) WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

# Built when a rebuild has put all rows: to keep them up to date row by row takes several times as long.
INDEXES = """
CREATE INDEX letters_by_sort ON letters (sort, cell);
CREATE INDEX letters_by_cell ON letters (cell, sort);
CREATE INDEX letters_by_key ON letters (key) WHERE key IS NOT NULL;
CREATE INDEX letters_by_lineage ON letters (lineage) WHERE lineage IS NOT NULL;
CREATE INDEX attempts_by_lineage ON attempts (lineage, attempt) WHERE lineage IS NOT NULL;
CREATE VIRTUAL TABLE message_text USING fts5(text, content='', detail='none', tokenize='trigram case_sensitive 1');
INSERT INTO message_text (rowid, text) SELECT id, coalesce(folded, lower(message)) FROM letters WHERE message IS NOT NULL;
"""
