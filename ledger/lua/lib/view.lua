-- What a caller sees of a run: its hash, and the ledger entries of its protected calls, one per call ('' if none).
-- `fields` is the whole hash where the script has just written it.

local function run_view(S, R, fields)
  local entries = {}
  for i = 0, call_count(R) - 1 do
    local call = call_of(R, i)
    local raw = false
    if call.pr and R.state.t then raw = redis.call('HGET', S.key, entry_field(R.state.t, call.m)) end
    entries[i + 1] = raw or ''
  end
  local turn = R.state.t and turn_id(S, R.state.t) or ''
  return { R.id, fields or redis.call('HGETALL', R.key), entries, turn, redis.call('LLEN', R.journal) }
end
