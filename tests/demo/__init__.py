"""`make demo`: the road from a line in a fleet's files to a row in a database."""
