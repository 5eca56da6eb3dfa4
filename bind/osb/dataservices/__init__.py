"""The kinds of provider-anynines, for compositions that go on without it."""
