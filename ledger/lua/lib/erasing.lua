-- Whether the erase list still holds a session that had this name.
local function erasing(sid)
  for _, member in ipairs(redis.call('ZRANGE', K.erase, 0, 999)) do
    if string.match(member, ' (%x+)$') == sid then return true end
  end
  return false
end
