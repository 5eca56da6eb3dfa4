-- Argo CD has no kstatus, and runs this without the libraries string, table, os and math.
local status = obj.status or {}
local met = {}
for _, one in ipairs(status.conditions or {}) do
  if one.observedGeneration == nil or one.observedGeneration == obj.metadata.generation then
    met[one.type] = one
  end
end
local ready = met.Ready or {}
local function is(kind, value)
  return met[kind] ~= nil and met[kind].status == value
end
local function so(health, message)
  return {status = health, message = message or ready.message or ""}
end
if status.conditions == nil then
  return so("Progressing", "there is no status yet")
end
if status.observedGeneration ~= nil and status.observedGeneration ~= obj.metadata.generation then
  return so("Progressing", "the status is about an older generation")
end
