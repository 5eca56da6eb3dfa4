"""Whether clusters can be planned and applied: connections, clocks, CRDs, rights and policies."""
