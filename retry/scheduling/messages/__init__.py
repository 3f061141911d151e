"""`retry scheduler`: the worker behind another entry source, with the settings, the REST API and the metrics of the Go
kafka-message-scheduler, whose place it takes."""
