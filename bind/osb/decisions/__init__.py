"""What follows for a claim and its records from one look: pure, one step at a time."""
