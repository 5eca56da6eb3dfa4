"""`make release`: all that a release is, from one commit, the same bytes each time."""
