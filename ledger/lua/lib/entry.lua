-- Mutation entries of the ledger. Packed {s tl at na rv o r md pf ri x ev}:
--   s status: a approved, s execution_started, c completed, f failed, u outcome_unknown
--   tl tool · at attempt token · na not_after (C-91) · rv revision · o order of first intent in the turn
--   r reason · md metadata JSON · pf its public JSON fragment · ri run id and call index `<run>:<i>`
--   x stream ids of its changes · rc reconciled by · vo voided attempt · ls last report kept as evidence
--   fh the attempt reported its own end · pa the last attempt that was reconciled and begun anew since
--   pc who reconciled that · pl its report after that, kept as evidence
--   pb the attempt that reported last that nothing was executed {k v f}: attempt, revision, public fragment if replaced
--   rq mq reconciliations, and metadata, that may be sent again, see answers.lua
--   rb readbacks {n k l ev}: tries, token of the one asked now, token of the last one answered, evidence of the last
--   ones {at by an no}: when, who answered, c|a|u, note

local function entry_field(number, mutation)
  return 'm' .. text(number) .. ':' .. mutation
end

local function load_entry(S, number, mutation)
  return get_record(S, entry_field(number, mutation), read_entry)
end

local function save_entry(S, number, mutation, entry)
  put(S, entry_field(number, mutation), entry)
end

-- The id that was spelled last, or that the caller has spelled already: it costs as much as five commands.
-- A table of all 256 bytes would be made anew at every call of a script, and cost more than all else that it does.
local spelled, spelling

local function hex(raw)
  if raw ~= spelled then
    spelled, spelling = raw, string.format(string.rep('%02x', #raw), string.byte(raw, 1, #raw))
  end
  return spelling
end

local REFUSAL = { s = 'mutation_outcome_unknown', u = 'mutation_outcome_unknown', c = 'mutation_completed',
                  f = 'mutation_failed' }
