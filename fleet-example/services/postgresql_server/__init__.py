"""A PostgreSQL server as the providers of this example use it: the operator and the broker.

`works` says what there is to be, and `postgres` has it so.
"""
