-- A False without a known severity counts as an error.
if status.phase == "Failed" then
  return so("Degraded", status.terminalMessage)
end
if is("Ready", "True") then
  return so("Healthy")
end
if is("Ready", "False") and ready.severity ~= "Warning" and ready.severity ~= "Info" then
  return so("Degraded")
end
return so("Progressing")
