"""The kinds of Klutch, and what the rest reads of their manifests.

Accessors are tolerant, like the readers of `core.manifest`: an absent field reads as empty.
"""
