"""Which retries are worth making, from counts of those that were made. Pure: neither Spark nor Kafka, no clock, no chance.

| module | what it does |
| --- | --- |
| `evidence` | counts of one kind of failure, by attempt, delay and age |
| `pooling` | which topics and policies may be counted together |
| `prospect` | what attempts bring at least, and later ones at most |
| `choose_attempts` | how many attempts and which delays are worth it; or how much is missing to say so |
| `delays` | delays as people write them |
| `backtest` | what older letters advise, tried on newer ones |
| `told` | the advice on one kind, in words |
| `actions` | the advice that saves most |
| `policy_rewrite` | the policy file with a rule for each advice |
| `observed` | the chance of a retry, and whether such a retry was ever made |
| `plan` | what a policy file has for letters of one kind |
| `replay` | what another policy file would have made of the same failures |
"""
