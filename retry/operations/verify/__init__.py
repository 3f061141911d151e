"""Whether anything of a deployment is lost, duplicate, torn, early, phantom, on a wrong topic or stuck: read only.

The topics are read once, and all that was written about one letter is then checked together:

| module | what it is |
| --- | --- |
| `run` | the steps of one run; tables on disk → rows |
| `topic_reading` | the topics, read as far as they are bound while the service goes on, and as retention has left them |
| `records`, `deliveries` | records → rows, of one type for each kind of record |
| `rows` | rows, kept in files by letter, so that memory does not grow with their number |
| `context` | what the checks go by, what the rows of one letter come to, and findings, counted, with examples |
| `checks` | the rows of one letter, of one record key, of one name → findings |
"""
