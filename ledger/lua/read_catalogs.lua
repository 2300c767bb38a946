-- What servers list now, as workers said last (C-64).
-- KEYS[1] seq hash of shard 0
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {k ls}: digests that the caller has already (as keys), ms after which a catalog that nobody
--   has named counts as gone
-- Reply: {-1, {server, digest, JSON or '' if the caller has it}...}
-- Errors: STORE_WENT_BACK STORE_CHANGED
--!include guard
--!include keys
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
local found = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', K.catalogs_listed, now - q.ls, now)) do
  local server, digest = string.match(member, '^(%S+) (%x+)$')
  found[#found + 1] = { server, digest, q.k[digest] and '' or redis.call('HGET', K.catalogs, digest) or '' }
end
return { -1, found }
