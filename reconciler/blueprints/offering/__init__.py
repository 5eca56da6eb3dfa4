"""Models the offerings of a service broker, and requests and answers, as values and files."""
