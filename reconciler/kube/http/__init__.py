"""HTTP to one API server: what is sent, and what its answers mean."""
