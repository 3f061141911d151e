"""`retry size`: letters a second and how long they wait → workers, shards, memory, disk, network. Asks no broker.

| module | what it is |
| --- | --- |
| `figures` | what was measured, each figure with the page and the row that has it |
| `record_bytes` | how large the records are that the service writes of a letter, by writing some |
| `calculate` | the arithmetic, and which of the inputs lie beyond what was measured |
"""
