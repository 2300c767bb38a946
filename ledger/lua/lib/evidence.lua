-- What a readback answered, kept with the entry for whoever has to decide (C-91). Needs keys, entry.

local EVIDENCE_MAX = 5
local ANSWERED = { c = 'completed', a = 'not_executed', u = 'unknown' }

-- `told` is {k by an no}: token of the question, who answered, c|a|u, note. Only the question asked now is answered:
-- refuses when another one is, or none.
local function note_answer(entry, attempt, told, now)
  local asked = entry.rb
  if entry.s ~= 'u' or entry.at ~= attempt or not asked or asked.k ~= told.k then
    refuse('READBACK_OVER', 'nobody waits for this answer any more')
  end
  asked.k, asked.l, asked.ev = nil, told.k, asked.ev or {}
  if #asked.ev == EVIDENCE_MAX then table.remove(asked.ev, 1) end
  table.insert(asked.ev, { at = now, by = told.by, an = told.an, no = told.no })
  redis.call('HINCRBY', K.counts, 'readbacks:' .. ANSWERED[told.an], 1)
end
