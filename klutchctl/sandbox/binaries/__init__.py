"""The executables of the servers: where they come from, and how they are made."""
