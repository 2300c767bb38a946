-- Decides one approval request: the first decision wins, the same again by the same person answers the same (C-41).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {id tn d by cf cm rq}: approval, tenant, approve|deny, who, typed tool name, comment,
--   requester may approve
-- Reply: {n, 'decided'|'repeated'|'expired', wake, packed approval}
-- Errors: STORE_WENT_BACK STORE_CHANGED NOT_FOUND ALREADY_DECIDED APPROVAL_EXPIRED APPROVAL_CANCELLED
--   CONFIRMATION_MISMATCH REQUESTER_MAY_NOT_APPROVE
-- Guarantees: a refusal changes nothing; an approval is bound to one call and never decided twice.
--!function
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include run
--!include expire
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local key = K.approval(q.id)
local approval = read_approval(redis.call('HGET', key, 'a') or nil)
if not approval or approval.tn ~= q.tn then refuse('NOT_FOUND', 'no such approval') end
if not q.rq and (q.by == approval.p or q.by == approval.u) then
  refuse('REQUESTER_MAY_NOT_APPROVE', 'asked for by the same principal or user')
end

local wanted = q.d == 'approve' and 'approved' or 'denied'
if approval.st == 'expired' then refuse('APPROVAL_EXPIRED', 'decided too late') end
if approval.st == 'cancelled' then refuse('APPROVAL_CANCELLED', 'its run ended') end
local R = load_run(approval.run, now)
local S = R and session_of(R)
if not S then refuse('APPROVAL_CANCELLED', 'its run ended') end
if approval.st ~= 'pending' then
  if approval.st == wanted and approval.by == q.by then
    return { raise_seq(seq_key), 'repeated', 0, pack_approval(approval) }
  end
  refuse('ALREADY_DECIDED', 'another decision came first')
end

if approval.ex <= now then
  expire_due(S, R)
  return { raise_seq(seq_key), 'expired', WAKE, redis.call('HGET', key, 'a') }
end
if q.d == 'approve' and approval.lv == 'confirm' and q.cf ~= approval.tl then
  refuse('CONFIRMATION_MISMATCH', 'the tool name typed does not match')
end

approval.st, approval.by, approval.da, approval.cm = wanted, q.by, now, q.cm
redis.call('HSET', key, 'a', pack_approval(approval))
redis.call('ZREM', K.approvals, q.id)
redis.call('ZREM', K.pending(approval.tn), q.id)
count_asked(approval.sid, -1)
local call = call_of(R, approval.i)
journal_add(R, { a = R.now, e = 'approval_decided', i = approval.i, m = call.m, ap = q.id, x = wanted })
if wanted == 'approved' then
  call.st, call.hd, call.da = 'q', true, is_handler(R) and now or nil
  touch(R, approval.i)
else
  end_call(R, approval.i, 'd')
end
if R.state.st == 'waiting_for_approval' then
  place_run(S, R)
else
  save_run(R)
end
return { raise_seq(seq_key), 'decided', WAKE, pack_approval(approval) }
