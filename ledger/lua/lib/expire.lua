-- Approval expiry by the store's clock: any script that meets a request past its time writes it (C-41).

local function expire_due(S, R)
  local changed = false
  for i = 0, call_count(R) - 1 do
    local call = call_of(R, i)
    if call.st == 'w' and call.ex <= R.now then
      end_call(R, i, 'x')
      changed = true
    end
  end
  if changed then place_run(S, R) end
  return changed
end
