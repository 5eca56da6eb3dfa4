# What is deleted, or deleted and made anew, has a ticket: tickets.json names it for a cluster, or for
# one service of it, such as "shop-eu-1/backups.anynines.com". Give that file code owners.
package main

import rego.v1

deny contains message if {
	some line in input.changes
	line.action in {"delete", "replace"}
	not line.keepsData
	not has_ticket(line)
	message := sprintf("%s: %s %s without a ticket", [line.cluster, line.action, line.ref.name])
}

has_ticket(line) if is_ticket(data.tickets[line.cluster])

has_ticket(line) if {
	service := sprintf("%s/%s.%s", [line.cluster, line.unit.resource, line.unit.group])
	is_ticket(data.tickets[service])
}

is_ticket(text) if regex.match(`^CHG-[0-9]+$`, text)

# Anything but a plan would have no line to deny.
deny contains "this is not a plan of klutchctl, version 1.x" if not is_plan

is_plan if {
	input.format == "klutchctl.dev/plan"
	startswith(input.version, "1.")
}
