"""The pages over HTTP: who may see what, how pages are made and kept fresh, and Now, Failures, Letters and Letter."""
