"""What answers requests to the front door."""
