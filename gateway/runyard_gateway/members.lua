-- Says who is in a room, and answers who counts as being there.
-- KEYS: the room's members. ARGV: for how many milliseconds, then whoever is there.

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local ttl_ms = tonumber(ARGV[1])

for i = 2, #ARGV do
  redis.call('ZADD', KEYS[1], now_ms + ttl_ms, ARGV[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_ms)
if #ARGV > 1 then
  redis.call('PEXPIRE', KEYS[1], ttl_ms)
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
