"""Whether anything of a deployment is lost, duplicate, torn, early, phantom, on a wrong topic or stuck: read only.

All that the topics say is read once, and what is said of one letter is then looked at together:

| module | what it is |
| --- | --- |
| `read_bounds` | up to where topics are read while the service goes on |
| `records`, `deliveries` | records → rows of a fixed size |
| `disk_tables` | tables on disk → rows |
| `rows`, `spill_files` | rows, kept in files by letter, so that memory does not grow with their number |
| `letter_history` | what the rows of one letter come to |
| `retention` | what retention and compaction have left |
| `context` | what the judge goes by |
| `checks` | the rows of one letter → findings |
| `ordered_entries` | who among ordered entries is stuck |
| `findings` | what was found, counted, and some of it |
| `run` | all of it together |
"""
