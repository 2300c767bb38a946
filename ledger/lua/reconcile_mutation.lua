-- A trusted host or person says what happened to an unknown mutation (C-91).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tn t m cp ds by rq at rb md pf}: sid, tenant, turn id, mutation (raw), completed,
--   dispatcher stopped, who, request token; of a readback also the attempt it was asked about, its answer {k by an no}
--   (see evidence.lua), and the metadata it found with their public fragment
-- Reply: {n, 'reconciled'|'repeated', record JSON, revision}
-- Errors: STORE_WENT_BACK STORE_CHANGED NOT_FOUND NOT_RECONCILABLE ATTEMPT_MAY_BE_RUNNING READBACK_OVER
-- Guarantees: closes the attempt: its later report changes nothing; a refusal changes nothing. A request that is sent
--   again says nothing of a later attempt (see lib/answers.lua).
--!include guard
--!include keys
--!include pack
--!include session
--!include journal
--!include entry
--!include outcome
--!include evidence
--!include answers
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = visible_session(q.sid, now)
if not S or S.meta.tn ~= q.tn then refuse('NOT_FOUND', 'no such session') end
local number = turn_number(S, q.t)
local turn = number and load_turn(S, number)
local entry = turn and load_entry(S, number, q.m)
if not entry then refuse('NOT_FOUND', 'no such mutation') end

local told, revision = answered_request(entry.rq, q.rq, q.t, hex(q.m), entry)
if told then return { raise_seq(seq_key), 'repeated', told, revision } end
local wanted = q.cp and 'c' or 'a'
if entry.rc and entry.s == wanted then
  if q.rq then
    entry.rq = keep_answer(entry.rq, q.rq, entry, entry.pf)
    save_entry(S, number, q.m, entry)
  end
  return { raise_seq(seq_key), 'repeated', outcome_record(q.t, hex(q.m), entry), entry.rv }
end
if entry.s ~= 'u' and entry.s ~= 's' then refuse('NOT_RECONCILABLE', 'only unknown outcomes are reconciled') end
if q.cp and entry.s == 's' then refuse('ATTEMPT_MAY_BE_RUNNING', 'wait until it is stored unknown') end
if not q.cp and not entry.fh and not q.ds and now <= entry.na then
  refuse('ATTEMPT_MAY_BE_RUNNING', string.format('%.0f', entry.na))
end

local before = entry.s
if q.rb then note_answer(entry, q.at, q.rb, now) end
if q.md then replace_metadata(entry, q.md, q.pf) end
entry.s, entry.r, entry.rc = wanted, nil, q.by .. (q.ds and ' (dispatcher stopped)' or '')
revise(turn, entry)
local record = publish(S, number, q.m, entry, now)
entry.rq = keep_answer(entry.rq, q.rq, entry, entry.pf)
save_entry(S, number, q.m, entry)
save_turn(S, number, turn)
local run, index = string.match(entry.ri, '^(%x+):(%d+)$')
-- A call still in flight takes its arguments along when it ends.
if before == 'u' then redis.call('HDEL', K.args(S.sid), entry.ri) end
if redis.call('EXISTS', K.run(run)) == 1 then
  local R = { id = run, journal = K.journal(run), events = {}, now = now }
  journal_add(R, { a = R.now, e = 'mutation_outcome', i = tonumber(index), m = q.m, o = record, rv = entry.rv })
  journal_flush(R)
end
return { raise_seq(seq_key), 'reconciled', record, entry.rv }
