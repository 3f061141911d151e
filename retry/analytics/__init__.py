"""PySpark jobs over the outcomes topic. They share the outcome's schema with the service and nothing else."""
