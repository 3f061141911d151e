"""What the report asks of the frames `attempts` and `parked`: one question, one transform, one frame out.

| module | question |
| --- | --- |
| `survival` | how likely is recovery by attempt N, or within time T |
| `cells` | how retries ended by kind of failure, attempt and delay: what `advise` and `what-if` calculate with |
| `histories` | what became of every letter, and what it cost |
| `recovery` | how long recovery takes |
| `waste` | which retries bought nothing, and how many bytes they were |
| `fingerprints` | which failures are most frequent, since when, and are they on the rise |
| `policies` | how do teams and policies compare |
| `storms` | when were far more retries sent than usual |
| `retention` | what will Kafka delete before it is processed |

Lateness is asked by `retry.analytics.transforms.lateness`, which takes `attempts` as it is. Of every transform only the columns
that its docstring names need to be there. Times are epoch milliseconds.
"""
