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
local ids = id ~= '' and { id } or redis.call('ZRANGE', K.pending(tenant), 0, most - 1)
local rows, n = {}, -1
for _, approval_id in ipairs(ids) do
  local raw = redis.call('HGET', K.approval(approval_id), 'a')
  local approval = unpack_record(raw or nil)
  if approval and approval.tn == tenant then
    if approval.st == 'pending' and approval.ex <= now then
      local R = load_run(approval.run, now)
      local S = R and load_session(approval.sid)
      if S and expire_due(S, R) then n = raise_seq(seq_key) end
      raw = redis.call('HGET', K.approval(approval_id), 'a')
    end
    local arguments = redis.call('HGET', K.args(approval.sid), approval.run .. ':' .. approval.i)
    rows[#rows + 1] = { approval_id, raw, arguments or '' }
  elseif not raw and id == '' then
    redis.call('ZREM', K.pending(tenant), approval_id)
  end
end
return { n, WAKE, rows }
