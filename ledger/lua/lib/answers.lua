-- Requests of hosts that were carried out, kept with the entry: one that is sent again after something else happened,
-- a new attempt for instance, is answered what it was answered then, and not carried out on that (C-22).
-- A list of {k v s r f}: request token, revision, status, reason, public fragment if the request does not bring it.

local ANSWERS_MAX = 4

-- The record and revision that the request was answered with, or nil. `shown` is the fragment that it brings along.
local function answered_request(list, token, turn, mutation_hex, entry, shown)
  for _, answer in ipairs(token and list or {}) do
    if answer.k == token then
      local then_was = { s = answer.s, r = answer.r, tl = entry.tl, pf = answer.f or shown }
      return outcome_record(turn, mutation_hex, then_was), answer.v
    end
  end
  return nil
end

-- The list with one more answer: what the entry is now.
local function keep_answer(list, token, entry, shown)
  if not token then return list end
  list = list or {}
  if #list == ANSWERS_MAX then table.remove(list, 1) end
  table.insert(list, { k = token, v = entry.rv, s = entry.s, r = entry.r, f = shown })
  return list
end
