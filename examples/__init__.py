"""What a team writes to use the service, and a demo that runs all of it on one machine."""
