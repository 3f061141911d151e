"""What comes in beside letters: each door turns the messages of its topics into named entries."""
