-- Says which tools a worker's servers list now, for whoever admits calls (C-64). All catalogs are in shard 0.
-- KEYS[1] seq hash of shard 0
-- ARGV[1] store id · ARGV[2] highest confirmed n
-- ARGV[3] packed request {l ls}: list of {server, digest of the catalog, its JSON or false}, ms after which a catalog
--   that nobody has named counts as gone
-- Reply: {-1, digests whose JSON is not here yet}
-- Errors: STORE_WENT_BACK STORE_CHANGED
-- Guarantees: what is told is only ever a worker's last word; nothing that must survive is kept here.
--!include guard
--!include keys
local seq_key, store_id, seen, q = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])

guard(seq_key, store_id, seen)
local now = store_now()
-- Also what a clock that was set back left ahead of now.
redis.call('ZREMRANGEBYSCORE', K.catalogs_listed, '-inf', now - q.ls)
redis.call('ZREMRANGEBYSCORE', K.catalogs_listed, now + 1, '+inf')

local missing = {}
for _, listed in ipairs(q.l) do
  local server, digest, body = listed[1], listed[2], listed[3]
  if body then redis.call('HSET', K.catalogs, digest, body) end
  if body or redis.call('HEXISTS', K.catalogs, digest) == 1 then
    redis.call('ZADD', K.catalogs_listed, now, server .. ' ' .. digest)
  else
    missing[#missing + 1] = digest
  end
end

local used = {}
for _, member in ipairs(redis.call('ZRANGE', K.catalogs_listed, 0, -1)) do used[string.match(member, '%x+$')] = true end
for _, digest in ipairs(redis.call('HKEYS', K.catalogs)) do
  if not used[digest] then redis.call('HDEL', K.catalogs, digest) end
end
return { -1, missing }
