"""What a service broker offers, and what is said to it and by it, as values and files."""
