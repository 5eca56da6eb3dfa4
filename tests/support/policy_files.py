"""The files of bind/deploy and konnector/deploy with admission policies; run it to write them."""

from pathlib import Path
from typing import Final

import bind
import konnector
from klutchctl.render import manifests
from reconciler.blueprints import broker_policy, policies
from reconciler.blueprints.policies import Policy

_BACKEND: Final = """\
# What RBAC cannot say of klutch-bind, and of account klutch-binder of each binding space, whose
# token an app cluster has. They concern no other account. Needs Kubernetes 1.30 or later. Made by
# tests/support/policy_files.py from reconciler/blueprints/policies.py.
"""
_BROKERS: Final = """\
# What RBAC cannot say of klutch-osb. It concerns no other account. Needs Kubernetes 1.30 or later.
# Made by tests/support/policy_files.py from reconciler/blueprints/broker_policy.py.
"""
_KONNECTOR: Final = """\
# What RBAC cannot say of the konnector's account in its app cluster. It concerns no other account.
# Needs Kubernetes 1.30 or later. Where permission claims name their namespaces, name the same in
# the first rule, in place of all but kube-*. Made by tests/support/policy_files.py from
# reconciler/blueprints/policies.py.
"""
FILES: Final = {
    Path(bind.__file__).parent / "deploy/default-mode/policies.yaml": (
        _BACKEND,
        (policies.backend(), policies.binder()),
    ),
    Path(bind.__file__).parent / "deploy/osb/policies.yaml": (_BROKERS, (broker_policy.policy(),)),
    Path(konnector.__file__).parent / "deploy/minimal/policies.yaml": (
        _KONNECTOR,
        (policies.konnector(),),
    ),
}


def text(head: str, made: tuple[Policy, ...]) -> str:
    documents = [manifests.yaml_lines(one) for policy in made for one in policy.manifests()]
    return head + "---\n".join("\n".join([*lines, ""]) for lines in documents)


if __name__ == "__main__":
    for file, content in FILES.items():
        file.write_text(text(*content))
