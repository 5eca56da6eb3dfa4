"""A service broker as a provider would write it: databases by the Open Service Broker API 2.17.

`catalogue` says what there is, `instances` decides and touches nothing, `store` remembers in
PostgreSQL, `broker` does what was decided, and `front` answers calls, on openbrokerapi and Flask.
"""
