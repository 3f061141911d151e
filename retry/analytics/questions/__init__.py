"""What the report asks of the frames `attempts` and `parked`: one question, one transform, one frame out.

| module | question |
| --- | --- |
| `recovery` | which part has recovered, or was given up, by attempt N, or within time T; how retries ended, for `advise` |
| `fates` | what became of every letter, and what it cost; what will Kafka delete before it is processed |
| `fingerprints` | which failures are most frequent, since when, are they on the rise; when were far more retries sent |
| `policies` | how do teams and policies compare: fates, reasons to park, time to recovery, lateness, waste |

Of every transform only the columns that its docstring names need to be there. Times are epoch milliseconds.
"""
