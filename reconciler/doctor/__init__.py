"""Examine clusters before a plan or an apply: connections, clocks, CRDs, rights and policies."""
