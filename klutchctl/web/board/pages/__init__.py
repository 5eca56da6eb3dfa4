"""The content of each page, as values made of an index, a query and the time. Pure."""
