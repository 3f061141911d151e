"""Whether anything of a deployment is lost, duplicate, torn, early, phantom, on a wrong topic or stuck: read only.

The topics are read once, and all that was written about one letter is then checked together:

| module | what it is |
| --- | --- |
| `run` | the steps of one run |
| `read_bounds` | up to where topics are read while the service goes on |
| `topic_reading` | the topics, read as far as these bounds |
| `records`, `deliveries` | records → rows, of one type for each kind of record |
| `disk_tables` | tables on disk → rows |
| `rows`, `spill_files` | rows, kept in files by letter, so that memory does not grow with their number |
| `letter_history` | what the rows of one letter come to |
| `retention` | what retention and compaction have left |
| `context` | what the checks go by |
| `checks`, `ordered_entries`, `named_entries` | the rows of one letter, of one record key, of one name → findings |
| `findings` | findings, counted, with examples |
"""
