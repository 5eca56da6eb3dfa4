"""The scenes of tests on real clusters."""

from tests.support.scene_fixtures import fleet, in_app, managed, on_plane, scene, wide

__all__ = ["fleet", "in_app", "managed", "on_plane", "scene", "wide"]
