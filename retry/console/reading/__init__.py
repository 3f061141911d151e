"""Answers from the replica: letters, kinds of failures, what there is now, and what is noted; nothing here folds."""
