"""The one door to librdkafka: clients, topics, transactions, and the local broker for development."""
