-- Accepts a store that went back (C-27): a new store id; every approval given before is void, live runs end, and
-- started entries are published unknown. Bounded: called until nothing is left.
-- KEYS[1] seq hash of the shard
-- ARGV[1] new store id · ARGV[2] most runs ended by this call
-- Reply: {n, more 0|1, runs ended}
-- Errors: none
-- Guarantees: until it answers more = 0 the shard stays refused; afterwards processes with an earlier id adopt the new.
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include outcome
--!include run
--!include handler
--!include report
local seq_key, new_id, most = KEYS[1], ARGV[1], tonumber(ARGV[2])

local now = store_now()
local before = redis.call('HMGET', seq_key, 'store', 'n', 'refused')
if before[1] == new_id and not before[3] then return { raise_seq(seq_key), 0, 0 } end
if not before[3] then redis.call('HSET', seq_key, 'refused', new_id) end

local ended = 0
local function end_live(S, run)
  local R = load_run(run, now)
  if not R or R.state.en then return end
  end_rest(R, R.state.i, 'k')
  R.state.cx = true
  finish_run(S, R, 'store_accepted')
  ended = ended + 1
end

-- A session whose queue is longer than one call may end stays ready, so that the next call finds the rest.
local function end_queued_runs(sid)
  local S = load_session(sid)
  if S then
    abandon_current(S, now)
    for _, live in ipairs({ unpack(S.live) }) do end_live(S, live.r) end
    disown(S)
    for _, run in ipairs(ended < most and redis.call('ZRANGE', K.queue(sid), 0, most - ended - 1) or {}) do
      end_live(S, run)
      redis.call('ZREM', K.queue(sid), run)
    end
  else
    redis.call('DEL', K.queue(sid))
  end
  redis.call('ZREM', K.owned, sid)
  if redis.call('ZCARD', K.queue(sid)) > 0 then
    redis.call('ZADD', K.ready, 'NX', now, sid)
  else
    redis.call('ZREM', K.ready, sid)
  end
end

for _, index in ipairs({ K.owned, K.ready }) do
  for _, sid in ipairs(redis.call('ZRANGE', index, 0, most - 1)) do
    if ended < most then end_queued_runs(sid) end
  end
end
for _, id in ipairs(redis.call('ZRANGE', K.approvals, 0, most - 1)) do
  if ended >= most then break end
  local approval = read_approval(redis.call('HGET', K.approval(id), 'a') or nil)
  local S = approval and load_session(approval.sid)
  if S then end_live(S, approval.run) end
  redis.call('ZREM', K.approvals, id)
end
if redis.call('ZCARD', K.owned) + redis.call('ZCARD', K.ready) + redis.call('ZCARD', K.approvals) > 0 then
  say_hints()
  return { tonumber(before[2] or '0'), 1, ended }
end

if before[1] then redis.call('HSET', seq_key, 'was:' .. before[1], '1') end
if before[3] then redis.call('HSET', seq_key, 'was:' .. before[3], '1') end
redis.call('HDEL', seq_key, 'refused')
redis.call('HSET', seq_key, 'store', new_id)
return { raise_seq(seq_key), 0, ended }
