"""What counts allow one to say, and how surely. Pure: numbers in, numbers out; neither Spark nor chance.

| module | question |
| --- | --- |
| `proportions` | between which bounds does a proportion lie |
| `rates` | between which bounds does a weighted sum of proportions lie |
| `homogeneity` | may two groups be counted together |
| `incidence` | which part has recovered, was parked, or expired after so many attempts, or so much time |
"""
