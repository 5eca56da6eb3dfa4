"""The library behind the three programs: a pure inner half, and one door to Kubernetes."""
