-- What became of the calls that live handlers wait for: read after news, so that a decision finds its handler (C-44).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {sid tk rows}: sid, owner token, rows {run, call index or -1 when the handler waits for none}
-- Reply: {n, news, packed {report of propose_call or a word, ...}} one value a row, in the rows' order; the word is the
--   status the run ended with, `cancelling`, `gone`, or `running`; news as in renew_leases
-- Errors: STORE_WENT_BACK STORE_CHANGED LEASE_LOST
-- Guarantees: a request past its time is written expired before it is shown (C-41).
--!function
--!include guard
--!include keys
--!include pack
--!include session
--!include ready
--!include journal
--!include entry
--!include outcome
--!include run
--!include expire
--!include handler
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local S = load_session(q.sid)
if not S or S.owner ~= q.tk then refuse('LEASE_LOST', 'another owner or none') end
local answers = {}
for place, row in ipairs(q.rows) do
  local R = load_run(row[1], now)
  local answer = 'gone'
  if R and R.state.en then
    answer = R.state.st
  elseif R and live_place(S, R.id) then
    expire_due(S, R)
    answer = R.state.cx and 'cancelling' or (row[2] >= 0 and call_report(S, R, row[2]) or 'running')
  end
  answers[place] = answer
end
return { raise_seq(seq_key), tonumber(S.news or -1), cmsgpack.pack(answers) }
