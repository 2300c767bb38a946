-- Reads approvals: one by id, or a tenant's pending ones in this shard, oldest first, from a position on.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] tenant · ARGV[4] approval id or '' · ARGV[5] most rows
-- ARGV[6] sid to list one session's only, or '' · ARGV[7] `<score>:<id>` to list those after, or ''
-- Reply: {n or -1, wake, {{id, packed approval, arguments JSON or '', score}, ...}, {score, id} looked at last or {}}
--   where the last is empty when there are no more after it
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: a request past its time is written expired before it is shown (C-41). At most 1000 are looked
--   at, and a list ends early after 1 MiB of arguments.
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include run
--!include expire
local seq_key, store_id, seen, tenant, id, most, only, after = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

guard(seq_key, store_id, seen)
local now = store_now()
local n, rows = -1, {}

local function read(approval_id, listed)
  local key = K.approval(approval_id)
  local raw = redis.call('HGET', key, 'a')
  local approval = read_approval(raw or nil)
  if not approval and listed then redis.call('ZREM', K.pending(tenant), approval_id) end
  if not approval or approval.tn ~= tenant or (only ~= '' and approval.sid ~= only) then return nil end
  local R = load_run(approval.run, now)
  local S = R and session_of(R)
  if not S then return nil end
  if approval.st == 'pending' and approval.ex <= now then
    if expire_due(S, R) then n = raise_seq(seq_key) end
    raw = redis.call('HGET', key, 'a')
    approval = read_approval(raw)
  end
  if listed and approval.st ~= 'pending' then return nil end
  return { approval_id, raw, redis.call('HGET', K.args(approval.sid), approval.run .. ':' .. approval.i) or '', listed or '' }
end

if id ~= '' then
  rows[1] = read(id)
  return { n, WAKE, rows, {} }
end
local LOOKED_AT, BYTES, bytes = 1000, 1048576, 0
local score, passed_id = string.match(after, '^(.+):(%x+)$')
local listed = redis.call('ZRANGEBYSCORE', K.pending(tenant), score or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, LOOKED_AT)
for at = 1, #listed, 2 do
  local passed = score and tonumber(listed[at + 1]) == tonumber(score) and listed[at] <= passed_id
  local row = not passed and read(listed[at], listed[at + 1])
  if row then
    rows[#rows + 1] = row
    bytes = bytes + #row[3]
  end
  local ends = at + 1 == #listed
  if (#rows == tonumber(most) or bytes > BYTES) and not ends or ends and #listed == 2 * LOOKED_AT then
    return { n, WAKE, rows, { listed[at + 1], listed[at] } }
  end
end
return { n, WAKE, rows, {} }
