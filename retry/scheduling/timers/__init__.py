"""The HTTP API of timers: `retry api`. A process of its own, which scales by itself and has no state but copies.

`timer_request` reads what is asked for, `read_model` is a fold of the changelog and of what became of calls, `timers` puts both together,
`routes` is the way in. What is created is one record of the changelog; the workers that own its shard do the rest.
"""
