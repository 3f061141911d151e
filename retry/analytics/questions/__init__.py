"""What the report asks of the frames `attempts` and `parked`: one question, one transform, one frame out.

| module | question |
| --- | --- |
| `incidence` | which part has recovered, or was given up, by attempt N, or within time T |
| `cells` | how retries ended by kind of failure, attempt and delay: what `advise` and `what-if` calculate with |
| `histories` | what became of every letter, and what it cost |
| `fingerprints` | which failures are most frequent, since when, and are they on the rise |
| `policies` | how do teams and policies compare: fates, reasons to park, time to recovery, lateness, waste |
| `storms` | when were far more retries sent than usual |
| `retention` | what will Kafka delete before it is processed |

Of every transform only the columns that its docstring names need to be there. Times are epoch milliseconds.
"""
