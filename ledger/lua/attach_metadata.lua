-- Attaches host metadata to a mutation, during execution or later (C-90).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tn a u t d m md pf rq}: sid, tenant, agent, user, turn id or delivery identity (raw),
--   mutation (raw), metadata JSON, its public fragment, request token
-- Reply: {n, record JSON or '' while nothing is published, revision}
-- Errors: STORE_WENT_BACK STORE_CHANGED NOT_FOUND
-- Guarantees: the same metadata again are not published again. A request that is sent again does not replace what was
--   attached since (see lib/answers.lua).
--!include guard
--!include keys
--!include pack
--!include session
--!include journal
--!include entry
--!include outcome
--!include answers
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = visible_session(q.sid, now)
if not S or S.meta.tn ~= q.tn then refuse('NOT_FOUND', 'no such session') end
local number
if q.t then
  number = turn_number(S, q.t)
else
  local delivery = read_delivery(redis.call('HGET', S.key, 'd' .. q.d) or nil)
  number = delivery and delivery.t
end
local turn = number and load_turn(S, number)
local entry = turn and turn.a == q.a and turn.u == q.u and load_entry(S, number, q.m)
if not entry then refuse('NOT_FOUND', 'no such mutation') end
local told, revision = answered_request(entry.mq, q.rq, turn_id(S, number), hex(q.m), entry, q.pf)
if told then return { raise_seq(seq_key), told, revision } end
local replaces = entry.md ~= q.md
if replaces then
  replace_metadata(entry, q.md, q.pf)
  revise(turn, entry)
  -- In flight, the fields wait for the settlement, which publishes them.
  if entry.s ~= 's' then publish(S, number, q.m, entry, now) end
  save_turn(S, number, turn)
end
entry.mq = keep_answer(entry.mq, q.rq, entry)
if replaces or q.rq then save_entry(S, number, q.m, entry) end
return { raise_seq(seq_key), outcome_record(turn_id(S, number), hex(q.m), entry), entry.rv }
