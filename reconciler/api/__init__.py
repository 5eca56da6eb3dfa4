"""The kinds of Klutch: each module has one, and what the rest reads of its manifests.

Accessors are tolerant, like the readers of `core.manifest`: an absent field reads as empty.
"""
