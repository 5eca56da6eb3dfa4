-- Ready of Klutch's own claims is True before the service exists: what manages it knows.
if is("Synced", "False") then
  return so("Degraded", met.Synced.message)
end
local managed = (status.managed or {}).conditions
local exists = managed == nil
for _, one in ipairs(managed or {}) do
  if one.type == "Ready" then
    exists = one.status == "True"
    if not exists then
      return so("Progressing", one.message)
    end
  end
end
if exists and is("Ready", "True") then
  return so("Healthy")
end
return so("Progressing")
