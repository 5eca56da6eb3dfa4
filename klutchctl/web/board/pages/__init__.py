"""Builds the content of each page as values, from an index, a query and the time. Pure."""
