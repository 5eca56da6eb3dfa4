"""The wire kinds as typed models that keep the fields they do not know.

Each module holds one kind: its `Kind` and its model. `Model.model_validate(obj)` reads a
manifest, `model.to_manifest()` writes the same one back.
"""
