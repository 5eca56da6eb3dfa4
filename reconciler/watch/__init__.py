"""A source that is followed: what changes there, and what drifts, becomes the clusters' state."""
