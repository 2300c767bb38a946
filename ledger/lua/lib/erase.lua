-- Ending a session, by erasure or expiry (C-81, C-82): tombstones and live runs at once, then one rename makes the
-- session invisible; a sweep deletes what was renamed in bounded pieces. A new session of that name starts fresh.

-- A live run with all that ending it will read, so that a record that cannot be read is met before anything is
-- written; nil for a run that has ended or is gone.
local function read_live_run(S, run, now)
  local R = load_run(run, now)
  if not R or R.state.en then return nil end
  if R.state.t then load_turn(S, R.state.t) end
  for i = 0, call_count(R) - 1 do
    local call = call_of(R, i)
    if call.ap then read_approval(redis.call('HGET', K.approval(call.ap), 'a') or nil) end
  end
  return R
end

local function end_live_run(S, R)
  R.state.cx = true
  end_rest(R, R.state.i, 'k')
  finish_run(S, R, 'session_erased')
end

-- The number of the turn and the mutation (raw) that a field of an entry is named by; nil for another field.
local function named_entry(field)
  return string.match(field, '^m(%d+):(.*)$')
end

-- `all`: erasure leaves a tombstone for every delivery on record, expiry for those that had an intent (C-84).
local function retire_session(S, now, tombstone_ms, all)
  local fields = redis.call('HGETALL', S.key)
  local deliveries, live, unknown = {}, {}, {}
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 1) == 'd' and #fields[at] == 33 then
      local delivery = read_delivery(fields[at + 1])
      deliveries[#deliveries + 1] = delivery
      live[#live + 1] = read_live_run(S, delivery.r, now)
    end
    local number, mutation = named_entry(fields[at])
    local entry = number and read_entry(fields[at + 1])
    if entry and entry.s == 'u' then unknown[S.sid .. ':' .. number .. ':' .. hex(mutation)] = entry end
  end
  for _, delivery in ipairs(deliveries) do
    if all or delivery.t then redis.call('ZADD', K.retired, now + tombstone_ms, delivery.tb) end
  end
  -- Now, because a new session of that name may list the very same members (C-91).
  for member, entry in pairs(unknown) do unlist_unknown(S.meta.tn, member, entry) end
  for _, R in ipairs(live) do end_live_run(S, R) end
  local generation = string.format('%.0f', redis.call('INCR', K.fence))
  local erased = K.erased(generation)
  redis.call('RENAME', S.key, erased)
  if redis.call('EXISTS', K.args(S.sid)) == 1 then redis.call('RENAME', K.args(S.sid), erased .. ':args') end
  if redis.call('EXISTS', K.pruned(S.sid)) == 1 then redis.call('RENAME', K.pruned(S.sid), erased .. ':runs') end
  redis.call('DEL', K.queue(S.sid))
  redis.call('HDEL', K.asked, S.sid)
  redis.call('ZREM', K.ready, S.sid)
  redis.call('ZREM', K.owned, S.sid)
  redis.call('ZREM', K.expiry, S.sid)
  redis.call('ZREM', K.sessions(S.meta.tn), S.sid)
  redis.call('ZADD', K.erase, now, generation .. ' ' .. S.sid)
  if all then redis.call('SET', K.dirty, string.format('%.0f', now)) end
end

local function erase_run(run)
  local key = K.run(run)
  local R = load_run(run)
  for i = 0, R and call_count(R) - 1 or -1 do
    local call = call_of(R, i)
    if call and call.ap then redis.call('DEL', K.approval(call.ap)) end
  end
  redis.call('DEL', key, K.journal(run))
end

-- Deletes at most `most` fields and listed runs of one erased session; answers how many, and whether it is gone.
local function erase_piece(member, most)
  local generation = string.match(member, '^%d+')
  local erased = K.erased(generation)
  redis.call('DEL', erased .. ':args')
  local runs = redis.call('ZRANGE', erased .. ':runs', 0, most - 1)
  for _, run in ipairs(runs) do erase_run(run) end
  if #runs > 0 then redis.call('ZREM', erased .. ':runs', unpack(runs)) end
  -- Not HSCAN: from its start it would walk more and more emptied places and one day find nothing.
  local fields = redis.call('HRANDFIELD', erased, most - #runs, 'WITHVALUES')
  for at = 1, #fields, 2 do
    local name = fields[at]
    if string.sub(name, 1, 1) == 'd' and #name == 33 then
      local delivery = read_delivery(fields[at + 1])
      erase_run(delivery.r)
      for _, run in ipairs(delivery.er or {}) do erase_run(run) end
    elseif named_entry(name) then
      local entry = read_entry(fields[at + 1])
      delete_stream_entries(entry)
      erase_run(string.match(entry.ri, '^%x+'))
    end
    if name ~= 'meta' then redis.call('HDEL', erased, name) end
  end
  local left = redis.call('HLEN', erased)
  if left <= 1 and #runs < most then
    redis.call('DEL', erased)
    redis.call('ZREM', K.erase, member)
    return true
  end
  return false
end
