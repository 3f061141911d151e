"""The soak: an hour of load and of whatever can happen to processes, then `retry verify`; one line of result.

| module | part |
| --- | --- |
| `load` | letters, all the time, and how many a broker has acknowledged |
| `downstream` | the consumer of the retry topics, for which some letters fail again |
| `faults` | what is done to workers, brokers and policies, drawn by a seed |
| `result` | waits until nothing is under way, asks `retry verify`, writes the line |
"""
