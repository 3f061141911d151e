"""The HTTP API of timers: `retry api`. A process of its own, which scales by itself and has no state but copies.

`timer_request` reads requests, `read_model` folds the changelog and the outcomes of calls, `timers` makes and shows timers,
`routes` serves them. A new timer is one record of the changelog; the workers that own its shard do the rest.
"""
