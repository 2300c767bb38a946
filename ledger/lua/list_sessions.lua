-- Lists a tenant's sessions in one shard, newest first, or what waits for a person there.
-- KEYS[1] seq hash of the shard
-- ARGV[1] store id · ARGV[2] highest confirmed n · ARGV[3] tenant · ARGV[4] 'sessions'|'unknowns' · ARGV[5] most rows
-- Reply: {-1, {{packed session meta, member, score, packed entry or '', turn id or ''}, ...}}
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
--!include keys
--!include pack
--!include session
--!include entry
local seq_key, store_id, seen, tenant, what, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

guard(seq_key, store_id, seen)
local now = store_now()
local index = what == 'unknowns' and K.unknowns(tenant) or K.sessions(tenant)
local rows, listed = {}, redis.call('ZREVRANGE', index, 0, most - 1, 'WITHSCORES')
for at = 1, #listed, 2 do
  local member = listed[at]
  local S = visible_session(string.sub(member, 1, 32), now)
  if S then
    local entry, turn = '', ''
    local number, mid = string.match(member, ':(%d+):(%x+)$')
    if number then
      local raw = string.gsub(mid, '%x%x', function(h) return string.char(tonumber(h, 16)) end)
      entry = redis.call('HGET', S.key, entry_field(number, raw)) or ''
      turn = turn_id(S, tonumber(number))
    end
    if entry ~= '' or not number then rows[#rows + 1] = { pack_session(S.meta), member, listed[at + 1], entry, turn } end
  end
end
return { -1, rows }
