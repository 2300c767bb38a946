-- Taking a logical turn out of the ledger: at the turn limit, at expiry, at erasure. Deliveries that had an intent
-- leave a tombstone, so that a redelivery is refused and never runs as new (C-84).

local TURNS_MAX = 50

local function delete_stream_entries(entry)
  for id in string.gmatch(entry.x or '', '%S+') do redis.call('XDEL', K.outcomes, id) end
end

-- Erasure finds runs by their deliveries. Those of a turn that goes before its session are listed, while they live
-- (C-82): by the end of their life, so that the list holds no others for long.
local function list_pruned_runs(S, runs, now)
  local key, listed = K.pruned(S.sid), {}
  for _, run in ipairs(runs) do
    local left = redis.call('PTTL', K.run(run))
    if left > 0 then
      listed[#listed + 1] = now + left
      listed[#listed + 1] = run
    end
  end
  if #listed > 0 then redis.call('ZADD', key, unpack(listed)) end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
end

local function retire_turn(S, number, turn, now, tombstone_ms)
  for _, mutation in ipairs(turn.ms) do
    local entry = load_entry(S, number, mutation)
    if entry then
      delete_stream_entries(entry)
      unlist_unknown(S.meta.tn, S.sid .. ':' .. number .. ':' .. hex(mutation), entry)
      drop(S, entry_field(number, mutation))
    end
  end
  local runs = {}
  for _, delivery in ipairs(turn.d) do
    local record = get_record(S, 'd' .. delivery, read_delivery)
    if record then
      redis.call('ZADD', K.retired, now + tombstone_ms, record.tb)
      drop(S, 'd' .. delivery)
      for _, run in ipairs(record.er or {}) do runs[#runs + 1] = run end
      runs[#runs + 1] = record.r
    end
  end
  list_pruned_runs(S, runs, now)
  drop(S, turn_field(number))
  for i, kept in ipairs(S.meta.ts) do
    if kept == number then table.remove(S.meta.ts, i) break end
  end
end

-- Worst status in a turn decides: only settled (c, f) entries, or unsettled ones that never ran (a).
local function prunable(S, number, turn)
  if not turn.f or turn.lv > 0 then return nil end
  local class = 'settled'
  for _, mutation in ipairs(turn.ms) do
    local entry = load_entry(S, number, mutation)
    if entry and entry.s == 'a' then class = 'approved' end
    if entry and (entry.s == 's' or entry.s == 'u') then return nil end
  end
  return class
end

-- Makes room for one more turn (C-70). Answers false when nothing may be pruned.
local function turn_to_prune(S)
  local second
  for _, number in ipairs(S.meta.ts) do
    local turn = load_turn(S, number)
    local class = turn and prunable(S, number, turn)
    if class == 'settled' then return number, turn end
    if class == 'approved' and not second then second = { number, turn } end
  end
  if second then return second[1], second[2] end
  return nil
end

local function room_for_turn(S)
  return #S.meta.ts < TURNS_MAX or turn_to_prune(S) ~= nil
end

local function make_room(S, now, tombstone_ms)
  if #S.meta.ts < TURNS_MAX then return true end
  local number, turn = turn_to_prune(S)
  if not number then return false end
  retire_turn(S, number, turn, now, tombstone_ms)
  return true
end
