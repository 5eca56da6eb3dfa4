"""The offerings of a service broker, its requests and answers, as values and files."""
