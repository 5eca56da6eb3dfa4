"""Which service namespace an app namespace has, as mappings come, change and go."""

from typing import Any

import pytest

from konnector.informers import Homes
from reconciler.api import API_SERVICE_NAMESPACE
from reconciler.kube.store import Store
from tests.support.space_objects import SPACE, live_like, mapping


class World:
    def __init__(self) -> None:
        self.mappings = Store(API_SERVICE_NAMESPACE)
        self.homes = Homes(self.mappings, SPACE)
        self.told: list[str] = []
        self.homes.follow(self.told.append)

    def says(self, app: str, service: str, **metadata: Any) -> None:
        held: Any = live_like(mapping(app), **metadata)
        self.mappings.put({**held, "status": {"namespace": service}})

    @property
    def pairs(self) -> dict[str, str]:
        found = {app: self.homes.service(app) for app in self.homes.all()}
        assert {app: self.homes.app(service) for app, service in found.items()} == {
            app: app for app in found
        }
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_home_is_what_the_status_says(world: World) -> None:
    world.says("dev", "s-dev")
    world.says("prod", "s-prod")
    assert world.pairs == {"dev": "s-dev", "prod": "s-prod"}
    world.says("dev", "s-new")
    assert world.pairs == {"dev": "s-new", "prod": "s-prod"}
    assert world.homes.app("s-dev") == ""


def test_a_mapping_that_goes_is_no_home(world: World) -> None:
    world.says("dev", "s-dev")
    world.says("dev", "s-dev", deletionTimestamp="2026-06-01T12:00:00Z")
    assert world.pairs == {}


def test_two_mappings_do_not_share_a_service_namespace(world: World) -> None:
    world.says("dev", "shared")
    world.says("prod", "shared")
    world.says("test", "shared")
    assert world.pairs == {"dev": "shared"}
    world.says("prod", "s-prod")
    assert world.pairs == {"dev": "shared", "prod": "s-prod"}
    world.told.clear()
    world.says("dev", "s-dev")
    assert world.pairs == {"dev": "s-dev", "prod": "s-prod", "test": "shared"}
    assert world.told == ["dev", "test"]


def test_who_has_a_service_namespace_keeps_it(world: World) -> None:
    world.says("dev", "shared")
    world.says("prod", "shared")
    world.says("dev", "shared", labels={"seen": "again"})
    assert world.pairs == {"dev": "shared"}
