"""What every process of the service stands on: its start, logs, rights, policy file, certificates, and its end."""
