"""The operators' pages: what failed and why, what is done about it, and whether that helps."""
