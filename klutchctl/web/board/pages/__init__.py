"""What each page shows, as values made of an index, a query and the time. Pure."""
