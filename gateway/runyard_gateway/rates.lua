-- Takes one call from each bucket, or from none of them.
-- KEYS: buckets. ARGV: for each of them its calls a minute, which is also the most that it holds.
-- Answers 0, or in how many milliseconds all of them have a call again.

local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local calls, wait_ms = {}, 0

for i, key in ipairs(KEYS) do
  local a_minute = tonumber(ARGV[i])
  local bucket = redis.call('HMGET', key, 'calls', 'at')
  local left = tonumber(bucket[1]) or a_minute
  local since_ms = math.max(0, now_ms - (tonumber(bucket[2]) or now_ms))
  calls[i] = math.min(a_minute, left + since_ms * a_minute / 60000)
  if calls[i] < 1 then
    wait_ms = math.max(wait_ms, math.ceil((1 - calls[i]) * 60000 / a_minute))
  end
end

if wait_ms > 0 then
  return wait_ms
end

for i, key in ipairs(KEYS) do
  redis.call('HSET', key, 'calls', tostring(calls[i] - 1), 'at', now_ms)
  redis.call('PEXPIRE', key, 60000)
end
return 0
