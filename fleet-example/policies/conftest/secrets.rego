# On the control planes that tickets.json calls production, no binding reaches more Secrets than before.
package main

import rego.v1

deny contains message if {
	some claim in input.widened
	claim.claim == "secrets"
	input.sections[claim.unit.cluster] in data.production
	message := sprintf(
		"%s: %s would reach Secrets: %s, before: %s",
		[claim.unit.cluster, claim.binding, claim.after, claim.before],
	)
}
