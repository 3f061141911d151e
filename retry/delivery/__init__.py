"""What is due and admitted leaves here: to retry topics, parking topics and webhooks, in transactions for several shards at once.

What operators ask of entries that wait is done here too, between two of these: move, hold, cancel, act.
"""
