"""A ServiceInstance, and the instance of a broker behind it."""
