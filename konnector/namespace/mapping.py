"""Which service namespace on the control plane belongs to which app namespace, as it is now."""

from collections.abc import Callable

from reconciler.core.manifest import Manifest, get_text, is_deleting, namespace_of
from reconciler.kube.store import Store


class Homes:
    """Follows the APIServiceNamespaces of one space. Only their status is believed (D.1).

    A service namespace has one app namespace: the first that says so, as long as it does. Else
    one's copies would be without their claims in the other.
    """

    def __init__(self, mappings: Store, space: str) -> None:
        self._mappings, self._space = mappings, space
        self._service: dict[str, str] = {}
        self._app: dict[str, str] = {}
        self._refused: dict[str, str] = {}  # by app namespace, what another has already
        self._followers: list[Callable[[str], None]] = []
        mappings.subscribe_keys(lambda key: self._look(key.name))

    def service(self, app_namespace: str) -> str:
        """Return the service namespace of an app namespace, "" while there is none."""
        return self._service.get(app_namespace, "")

    def app(self, service_namespace: str) -> str:
        """Return the app namespace of a service namespace, "" for none of this space."""
        return self._app.get(service_namespace, "")

    def mapping(self, app_namespace: str) -> Manifest | None:
        """Return the APIServiceNamespace of an app namespace."""
        return self._mappings.get(self._space, app_namespace)

    def mappings(self) -> list[Manifest]:
        """Return the APIServiceNamespaces of the space."""
        return [one for one in self._mappings.all() if namespace_of(one) == self._space]

    def all(self) -> list[str]:
        """Return the app namespaces that have a service namespace."""
        return list(self._service)

    def follow(self, on_change: Callable[[str], None]) -> Callable[[], None]:
        """Have `on_change(app namespace)` called after each change, until what is returned is."""
        self._followers.append(on_change)
        return lambda: self._followers.remove(on_change)

    def _look(self, app_namespace: str) -> None:
        mapping = self.mapping(app_namespace)
        now = get_text(mapping, "status", "namespace")
        if mapping is not None and is_deleting(mapping):
            now = ""
        before = self._service.pop(app_namespace, "")
        self._app.pop(before, None)
        self._refused.pop(app_namespace, None)
        if now in self._app:
            self._refused[app_namespace] = now
        elif now:
            self._service[app_namespace], self._app[now] = now, app_namespace
        for on_change in list(self._followers):
            on_change(app_namespace)
        if before != now:
            self._offer(before)

    def _offer(self, service_namespace: str) -> None:
        """Give what is free to the next that says that it is its own."""
        waiting = (app for app, wanted in self._refused.items() if wanted == service_namespace)
        if (app := next(waiting, "")) != "":
            self._look(app)
