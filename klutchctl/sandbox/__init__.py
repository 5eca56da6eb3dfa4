"""Real control planes on one machine: find or build the servers, run them, stop them."""
