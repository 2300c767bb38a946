-- Reads approvals: one by id, or a tenant's pending ones in this shard, oldest first.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] tenant · ARGV[4] approval id or '' · ARGV[5] most rows
-- Reply: {n or -1, wake, {{id, packed approval, arguments JSON or ''}, ...}}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: a request past its time is written expired before it is shown (C-41).
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include run
--!include expire
local seq_key, store_id, seen, tenant, id, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

guard(seq_key, store_id, seen)
local now = store_now()
local n, rows = -1, {}

local function read(approval_id)
  local key = K.approval(approval_id)
  local raw = redis.call('HGET', key, 'a')
  local approval = unpack_record(raw or nil)
  if not approval and id == '' then redis.call('ZREM', K.pending(tenant), approval_id) end
  if not approval or approval.tn ~= tenant then return nil end
  local R = load_run(approval.run, now)
  local S = R and session_of(R)
  if not S then return nil end
  if approval.st == 'pending' and approval.ex <= now then
    if expire_due(S, R) then n = raise_seq(seq_key) end
    raw = redis.call('HGET', key, 'a')
    approval = unpack_record(raw)
  end
  if id == '' and approval.st ~= 'pending' then return nil end
  return { approval_id, raw, redis.call('HGET', K.args(approval.sid), approval.run .. ':' .. approval.i) or '' }
end

for _, approval_id in ipairs(id ~= '' and { id } or redis.call('ZRANGE', K.pending(tenant), 0, most - 1)) do
  rows[#rows + 1] = read(approval_id)
end
return { n, WAKE, rows }
