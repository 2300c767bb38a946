-- Publishing a change of an entry: its projection (spec `mutation_outcome/v1`), the stream entry and the journal
-- event, in the same atomic step as the ledger write (C-111).

local PUBLISHED = { s = 'outcome_unknown', u = 'outcome_unknown', c = 'completed', f = 'failed', a = 'not_executed' }
-- The only reasons that are published, each with the one status it belongs to (`ledger.outcomes`).
local PUBLISHED_REASON = { a = 'pre_dispatch_deadline', u = 'execution_timeout' }
local NO_METADATA = '"resource_id":null,"url":null,"title":null'

-- Tool names hold no character that JSON would escape (checked at admission).
local function outcome_record(turn, mutation_hex, entry)
  local shown = entry.r and entry.r == PUBLISHED_REASON[entry.s]
  local reason = shown and (',"reason":"' .. entry.r .. '"') or ''
  return '{"schema":"mutation_outcome/v1","logical_turn_id":"' .. turn .. '","mutation_id":"' .. mutation_hex
    .. '","tool":"' .. entry.tl .. '","status":"' .. PUBLISHED[entry.s] .. '"' .. reason .. ','
    .. (entry.pf or NO_METADATA) .. '}'
end

-- What the last put-back was published with stays on record for its repeat (C-22).
local function replace_metadata(entry, md, pf)
  local back = entry.pb
  if back and not back.f then back.f = entry.pf or NO_METADATA end
  entry.md, entry.pf = md, pf
end

-- Raises the turn's revision and stores it on the entry (C-12).
local function revise(turn, entry)
  turn.rv = turn.rv + 1
  entry.rv = turn.rv
end

-- What an unknown outcome is listed under: for people, and for whoever can look it up (`readback:<tool>`, by the time
-- from which it may be asked).
local function list_unknown(S, member, entry, now)
  redis.call('ZADD', K.unknowns(S.meta.tn), now, member)
  redis.call('ZADD', K.readback(entry.tl), 'NX', entry.na + 1, member)
end

local function unlist_unknown(tenant, member, entry)
  redis.call('ZREM', K.unknowns(tenant), member)
  redis.call('ZREM', K.readback(entry.tl), member)
end

-- Adds the stream entry, keeps its id for erasure, and lists or unlists the unknown. Returns the record. `before` may
-- tell the status until now: what was only started is on no list.
local function publish(S, number, mutation, entry, now, before)
  local id, mid = turn_id(S, number), hex(mutation)
  local record = outcome_record(id, mid, entry)
  local stream_id = redis.call('XADD', K.outcomes, '*', 'tenant', S.meta.tn, 'session_id', S.meta.s,
    'logical_turn_id', id, 'mutation_id', mid, 'mutation_revision', entry.rv, 'record', record)
  entry.x = entry.x and (entry.x .. ' ' .. stream_id) or stream_id
  if entry.s == 'u' then
    list_unknown(S, S.sid .. ':' .. number .. ':' .. mid, entry, now)
  elseif before ~= 's' then
    unlist_unknown(S.meta.tn, S.sid .. ':' .. number .. ':' .. mid, entry)
  end
  return record
end
