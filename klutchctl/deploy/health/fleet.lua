-- An Application writes the commit of its sync here: `commonAnnotations` with $ARGOCD_APP_REVISION. A
-- controller that went on to a newer commit has it in its history.
local wanted = (obj.metadata.annotations or {})["klutchctl.dev/revision"]
local source = status.source or {}
local reached = wanted == nil or source.revision == wanted or source.refused == wanted
  or (source.looked or {}).revision == wanted
for _, round in ipairs(status.history or {}) do
  reached = reached or round.revision == wanted
end
if not reached then
  return so("Progressing", "the controller has not looked at this revision yet")
end
if ready.reason == "Suspended" then
  return so("Suspended")
end
if is("Stalled", "True") then
  return so("Degraded")
end
if is("Ready", "True") then
  return so("Healthy")
end
if is("Ready", "False") and not is("Reconciling", "True") then
  return so("Degraded")
end
return so("Progressing")
