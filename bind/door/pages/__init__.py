"""The pages of the front door, as HTML without a script."""
