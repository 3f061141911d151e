"""What a release consists of, made from one tag: the same bytes each time. `make release` runs it."""
