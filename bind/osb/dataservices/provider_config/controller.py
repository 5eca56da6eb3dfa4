"""ProviderConfigs, by their names."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from bind.osb.dataservices.backup.wire import Reply
from bind.osb.dataservices.brokers import Brokers
from bind.osb.dataservices.informers import CONFIG, Informers
from bind.osb.dataservices.provider_config.decide import Seen, answered, next_step
from reconciler.controller.controller import ObjectReconciler, Queue
from reconciler.controller.executor import Executor, Observed, observed
from reconciler.core.decision import NOTHING, Decision
from reconciler.core.refs import ObjectKey

_MOST_CALLS: Final = 2


class ProviderConfigs(ObjectReconciler[ObjectKey, Seen]):
    """Says whether brokers and backup managers are well, and how many objects need them."""

    def __init__(self, informers: Informers, executor: Executor, brokers: Brokers) -> None:
        self._configs = informers.recent(informers.configs)
        super().__init__(executor, self._configs)
        self._informers, self._brokers = informers, brokers

    def subscribe(self, queue: Queue[ObjectKey]) -> None:
        """Have the keys enqueued that a change concerns."""
        self._informers.configs.subscribe_keys(queue.enqueue)
        self._informers.usages.subscribe(CONFIG, lambda name: queue.enqueue(ObjectKey("", name)))

    async def look(self, key: ObjectKey) -> tuple[Observed, Seen] | None:
        """Return one ProviderConfig and how many objects use it."""
        live = self._configs.get(*key)
        if live is None:
            return None
        users = len(self._informers.usages.keys_by(CONFIG, key.name))
        seen = Seen(self._informers.cluster.name, live, self.executor.now(), users)
        return observed(self._configs, live), seen

    def decide(self, view: Seen, now: datetime) -> Decision:
        """Return what follows without asking anybody."""
        step = next_step(replace(view, now=now))
        return step if isinstance(step, Decision) else NOTHING

    async def decided(self, view: Seen) -> Decision:
        """Return what follows, from the answers too."""
        step = next_step(view)
        if isinstance(step, Decision):
            return step
        server = await self._brokers.reach(view.live)
        if isinstance(server, str):
            step = next_step(replace(view, trouble=server))
            return step if isinstance(step, Decision) else NOTHING
        for _ in range(_MOST_CALLS):
            if isinstance(step, Decision):
                break
            answer = await server.ask(step, space="", probes=True)
            status = answer.status if isinstance(answer, Reply) else 0
            problem = "" if isinstance(answer, Reply) else answer.problem
            step = answered(replace(view, now=self.executor.now()), step, status, problem)
        return step if isinstance(step, Decision) else NOTHING
