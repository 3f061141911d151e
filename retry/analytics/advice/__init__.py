"""Which retries are worth making, from counts of those that were made. Pure: neither Spark nor Kafka, no clock, no chance.

| module | what it does |
| --- | --- |
| `evidence` | counts of one kind of failure, by attempt and delay |
| `choose_attempts` | how many attempts and which delays are worth it; or how much is missing to say so |
| `policy_rewrite` | the policy file with a rule for each advice |
| `replay` | what another policy file would have made of the same failures |
"""
