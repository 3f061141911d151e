"""What tests of the whole service share: a deployment with real workers, letters, readers, and the checker."""
