-- Notes that a readback could not tell, and when it may be asked again (C-91).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid t m at rb pz cap}: sid, turn id, mutation (raw), attempt, answer {k by an no} (see
--   evidence.lua), ms until the next try, most tries
-- Reply: {n, 'noted'|'repeated'}
-- Errors: STORE_WENT_BACK STORE_CHANGED READBACK_OVER
-- Guarantees: the mutation's status, reason and revision stay as they are; after the last try nobody asks any more.
--!include guard
--!include keys
--!include pack
--!include session
--!include entry
--!include evidence
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = visible_session(q.sid, now)
local number = S and turn_number(S, q.t)
local entry = number and load_entry(S, number, q.m)
if not entry then refuse('READBACK_OVER', 'the mutation is gone') end
if entry.rb and entry.rb.l == q.rb.k then return { raise_seq(seq_key), 'repeated' } end
note_answer(entry, q.at, q.rb, now)
save_entry(S, number, q.m, entry)
local index, member = K.readback(entry.tl), S.sid .. ':' .. number .. ':' .. hex(q.m)
if entry.rb.n >= q.cap then
  redis.call('ZREM', index, member)
else
  redis.call('ZADD', index, now + q.pz, member)
end
return { raise_seq(seq_key), 'noted' }
