"""HTTP to one API server: its connections, and the streams that answers come in."""
