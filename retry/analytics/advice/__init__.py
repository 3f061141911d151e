"""Which retries are worth making, from counts of those that were made. Pure: neither Spark nor Kafka, no clock, no chance.

| module | what it does |
| --- | --- |
| `evidence` | counts of one kind of failure, by attempt, delay and age; which topics may be counted together |
| `prospect` | what attempts bring at least, and what those after them may bring at most |
| `grounds` | whether a history is one to give up attempts by: enough outages, all times of the week, ends that can be known |
| `choose_attempts` | how many attempts and which delays are worth it; or how much is missing to say so |
| `forecast` | what the next week brings, if letters come and recover as they did |
| `compare` | two policy files on the same failures; and what older letters advise, tried on newer ones |
| `summary` | the advice in rows and in words |
| `actions` | what saves most, a sentence and a rule each; and what became of it a period later |
| `policy_rewrite` | the policy file with a rule for each advice |
| `replay` | what a policy file has for letters of one kind, and what another one would have made of the same failures |
"""
