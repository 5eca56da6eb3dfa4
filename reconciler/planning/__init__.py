"""From what is wanted and what is there to what would change, and why. Pure."""
