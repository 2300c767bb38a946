-- Reads a session's ledger: everything (history, show), or one turn (`events`, `mutation_state`).
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] sid · ARGV[4] tenant
-- ARGV[5] turn id, 'd' + raw delivery identity, or '' for the whole session
-- Reply: {-1, packed meta, {turn id, packed turn, {mutation (raw), packed entry, ...}, ...}, owner token or ''},
--   or {-1, ''} when unknown to this tenant
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
--!include keys
--!include pack
--!include session
--!include entry
local seq_key, store_id, seen, sid, tenant, which = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

guard(seq_key, store_id, seen)
local S = visible_session(sid, store_now())
if not S or S.meta.tn ~= tenant then return { -1, '' } end
local numbers = S.meta.ts
if string.sub(which, 1, 1) == 'd' and #which == 33 then
  local delivery = read_delivery(redis.call('HGET', S.key, which) or nil)
  numbers = { delivery and delivery.t }
elseif which ~= '' then
  numbers = { turn_number(S, which) }
end
local rows = {}
for _, number in ipairs(numbers) do
  local raw = redis.call('HGET', S.key, 't' .. number)
  local turn = read_turn(raw or nil)
  if turn then
    local entries = {}
    for _, mutation in ipairs(turn.ms) do
      local entry = redis.call('HGET', S.key, entry_field(number, mutation))
      if entry then
        entries[#entries + 1] = mutation
        entries[#entries + 1] = entry
      end
    end
    rows[#rows + 1] = turn_id(S, number)
    rows[#rows + 1] = raw
    rows[#rows + 1] = entries
  end
end
return { -1, pack_session(S.meta), rows, S.owner or '' }
