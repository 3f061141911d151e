"""`retry discover`: the dead-letter topics that a cluster already has, and a policy file that would attach them.

| module | what it is |
| --- | --- |
| `topic_words` | what a topic's name says by its words, and a header's that nobody knows |
| `look` | the cluster → samples, groups, offsets and times; reads, and changes nothing |
| `found_topic` | the newest letters of a topic, counted: a sample → whether these are dead letters, whose, how fast, how old |
| `proposal` | found topics → teams, targets, and what to ask a person |
| `policy_text` | a proposal → the policy file |
"""
