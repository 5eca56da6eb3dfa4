"""klutch-osb: turns claims of generated kinds into instances and bindings at service brokers."""
