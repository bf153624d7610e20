-- Every write to streams of frames: many operations a call, one answer each, none of them half done.
--
-- KEYS  1: the index of finished streams; then two for each operation: the stream's frames, its meta hash
-- ARGV  prefix, max_bytes, retain_ms, max_streams, frame overhead in bytes; then for each operation its name, the
--       stream's id and what `runyard/streams/ops.py` puts behind them (frames: their number, then event, data each)
-- Gives {status, last} for each operation; `open` adds 1 where it made the key.
--
-- The meta hash: generation, state (live, closed), first (oldest kept frame; last + 1 when none is), last, bytes, base.

local prefix, retain_ms = ARGV[1], ARGV[3]
local max_bytes, max_streams, overhead = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local argument, key = 6, 2

local function take()
  argument = argument + 1
  return ARGV[argument - 1]
end

local function take_number()
  return tonumber(take())
end

local function take_frames()
  local frames = { count = take_number(), from = argument }
  argument = argument + 2 * frames.count
  return frames
end

local function digits(number)
  return string.format('%.0f', number)
end

local function fresh(stream, generation, base)
  redis.call('UNLINK', stream.key, stream.meta)
  local first = base > 0 and base or 1
  stream.generation, stream.state, stream.base = generation, 'live', base
  stream.first, stream.last, stream.bytes = first, first - 1, 0
end

-- Reads the meta hash and says whether the stream is there. A hash whose frames were evicted under memory pressure is no stream any more.
local function read_meta(stream)
  local meta = redis.call('HMGET', stream.meta, 'generation', 'state', 'first', 'last', 'bytes', 'base')
  if not meta[1] then return false end
  stream.generation, stream.state = tonumber(meta[1]), meta[2]
  stream.first, stream.last = tonumber(meta[3]), tonumber(meta[4])
  stream.bytes, stream.base = tonumber(meta[5]), tonumber(meta[6])
  return stream.last < stream.first or redis.call('EXISTS', stream.key) == 1
end

local function save(stream)
  redis.call('HSET', stream.meta, 'generation', digits(stream.generation), 'state', stream.state,
    'first', digits(stream.first), 'last', digits(stream.last),
    'bytes', digits(stream.bytes), 'base', digits(stream.base))
end

local function refresh_ttl(stream)
  redis.call('PEXPIRE', stream.key, retain_ms)
  redis.call('PEXPIRE', stream.meta, retain_ms)
end

-- Numbers and stores frames; `batch` gathers them for the one publish of the operation.
local function add(stream, frames, batch)
  for at = frames.from, frames.from + 2 * frames.count - 1, 2 do
    local event, data = ARGV[at], ARGV[at + 1]
    stream.last = stream.last + 1
    stream.bytes = stream.bytes + #data + #event + overhead
    local id = digits(stream.last) .. '-0'
    if event == '' then
      redis.call('XADD', stream.key, id, 'd', data)
    else
      redis.call('XADD', stream.key, id, 'e', event, 'd', data)
    end
    batch.count = batch.count + 1
    batch.lengths[batch.count] = struct.pack('>I4I4', #event, #data)
    batch.bodies[batch.count] = event .. data
  end
end

-- Drops the oldest frames over the byte budget, never the newest.
local function evict(stream, batch)
  while stream.bytes > max_bytes and stream.first < stream.last do
    for _, entry in ipairs(redis.call('XRANGE', stream.key, '-', '+', 'COUNT', batch.count + 1)) do
      if stream.bytes <= max_bytes or stream.first == stream.last then break end
      local fields = entry[2]
      stream.bytes = stream.bytes - #fields[2] - #(fields[4] or '') - overhead
      stream.first = stream.first + 1
    end
    redis.call('XTRIM', stream.key, 'MINID', '=', digits(stream.first) .. '-0')
  end
end

-- The framing that `runyard/streams/batch.py` reads: version, first number, count; lengths; bodies.
local function publish(stream, batch)
  if batch.count == 0 then return end
  redis.call('PUBLISH', prefix .. ':live:' .. stream.id,
    struct.pack('>I1I8I4', 1, stream.last - batch.count + 1, batch.count)
    .. table.concat(batch.lengths) .. table.concat(batch.bodies))
end

local function new_batch()
  return { count = 0, lengths = {}, bodies = {} }
end

local function index_finished(stream)
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZADD', KEYS[1], digits(now_ms), stream.id)
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', digits(now_ms - retain_ms))
  local over = redis.call('ZCARD', KEYS[1]) - max_streams
  if over > 0 then
    local oldest = redis.call('ZPOPMIN', KEYS[1], over)
    for at = 1, #oldest, 2 do
      local frames_key = prefix .. ':stream:' .. oldest[at]
      redis.call('UNLINK', frames_key, frames_key .. ':meta')
    end
  end
  redis.call('PEXPIRE', KEYS[1], retain_ms)
end

local operations = {}

function operations.open(stream)
  local generation = take_number()
  local made = not read_meta(stream)
  if made then
    fresh(stream, generation, 0)
  elseif stream.state == 'closed' then
    return { 'closed', stream.last, 0 }
  elseif generation < stream.generation then
    return { 'fenced', stream.last, 0 }
  end
  stream.generation = generation
  save(stream)
  refresh_ttl(stream)
  return { 'ok', stream.last, made and 1 or 0 }
end

-- Why a writer of this generation may not write, nil when it may.
local function refusal(stream, generation)
  if not read_meta(stream) then return { 'missing', 0 } end
  if stream.state == 'closed' then return { 'closed', stream.last } end
  if generation < stream.generation then return { 'fenced', stream.last } end
  -- A lower one in the hash: Redis lost the `open`, so it may have lost frames as well.
  if generation > stream.generation then return { 'gap', stream.last } end
  return nil
end

function operations.append(stream)
  local generation, first, frames = take_number(), take_number(), take_frames()
  local refused = refusal(stream, generation)
  if refused then return refused end
  if first ~= stream.last + 1 then return { 'gap', stream.last } end
  local was_empty = stream.last < stream.first
  local batch = new_batch()
  add(stream, frames, batch)
  evict(stream, batch)
  redis.call('HSET', stream.meta, 'first', digits(stream.first), 'last', digits(stream.last),
    'bytes', digits(stream.bytes))
  if was_empty then refresh_ttl(stream) end
  publish(stream, batch)
  return { 'ok', stream.last }
end

function operations.touch(stream)
  local refused = refusal(stream, take_number())
  if refused then return refused end
  refresh_ttl(stream)
  return { 'ok', stream.last }
end

function operations.reset(stream)
  local generation, base, frames = take_number(), take_number(), take_frames()
  if read_meta(stream) then
    if stream.state == 'closed' then return { 'closed', stream.last } end
    if generation < stream.generation then return { 'fenced', stream.last } end
    if base == stream.base and generation == stream.generation then return { 'ok', stream.last } end
    if base <= stream.last then return { 'gap', stream.last } end
  end
  fresh(stream, generation, base)
  local batch = new_batch()
  add(stream, frames, batch)
  evict(stream, batch)
  save(stream)
  refresh_ttl(stream)
  publish(stream, batch)
  return { 'ok', stream.last }
end

function operations.close(stream)
  local settled_last, base = take_number(), take_number()
  local rewind, base_frames, frames = take_frames(), take_frames(), take_frames()
  local batch = new_batch()
  local there = read_meta(stream)
  if there and stream.state == 'closed' then return { 'closed', stream.last } end
  if base > 0 and not (there and stream.base >= base) then
    if there and base <= stream.last then return { 'below', stream.last } end
    fresh(stream, there and stream.generation or 0, base)
    add(stream, base_frames, batch)
  elseif not there then
    if settled_last > 0 then return { 'below', 0 } end
    fresh(stream, 0, 0)
  elseif stream.last < settled_last then
    return { 'below', stream.last }
  elseif stream.last > settled_last then
    add(stream, rewind, batch)
  end
  add(stream, frames, batch)
  evict(stream, batch)
  stream.state = 'closed'
  save(stream)
  refresh_ttl(stream)
  publish(stream, batch)
  index_finished(stream)
  return { 'ok', stream.last }
end

-- Errors that blame the keys of one stream: somebody else wrote to them, or they hold half of what they should. Any
-- other (out of memory, a replica, a disk that is full) is the server's, and fails the whole call.
local BLAMES_KEYS = { 'WRONGTYPE', 'equal or smaller', 'attempt to', 'bad argument' }

local function blames_keys(message)
  for _, words in ipairs(BLAMES_KEYS) do
    if string.find(message, words, 1, true) then return true end
  end
  return false
end

-- One stream's operation must not fail the others'. A stream whose keys make no sense is dropped, as if Redis had lost
-- it: its writer begins it anew. The second value is an error of the server's.
local function perform(operation, id)
  local began = argument
  local stream = { id = id, key = KEYS[key], meta = KEYS[key + 1] }
  local done, answer = pcall(operation, stream)
  if done then return answer end
  local message = type(answer) == 'table' and answer.err or answer -- some servers give a table, most the text
  if not blames_keys(message) then return nil, redis.error_reply(message) end
  redis.call('UNLINK', stream.key, stream.meta)
  argument = began
  return operation({ id = id, key = stream.key, meta = stream.meta })
end

local answers = {}
while argument <= #ARGV do
  local operation = operations[take()]
  local answer, failure = perform(operation, take())
  if failure then return failure end
  answers[#answers + 1] = answer
  key = key + 2
end
return answers
