"""The kinds of provider-anynines, for existing compositions."""
