"""The parts of what is decided about bindings, and of how they come and go."""
