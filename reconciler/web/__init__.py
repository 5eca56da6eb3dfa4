"""HTTP from anybody: requests as values, within limits, and answers as values."""
