"""Whether anything of a deployment is lost, duplicate, torn, early, phantom, on a wrong topic or stuck: read only.

All that the topics say is read once, and what is said of one letter is then looked at together:

| module | what it is |
| --- | --- |
| `cut` | up to where topics are read while the service goes on |
| `reading`, `deliveries` | records → rows of a fixed size |
| `stored` | tables on disk → rows |
| `rows`, `spill` | rows, kept in files by letter, so that memory does not grow with their number |
| `letter` | what the rows of one letter come to |
| `kept` | what retention and compaction have left |
| `known` | what the judge goes by |
| `judge` | the rows of one letter → findings |
| `queues` | who among ordered entries is stuck |
| `findings` | what was found, counted, and some of it |
| `whole` | all of it together |
"""
