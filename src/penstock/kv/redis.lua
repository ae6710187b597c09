-- Key-value entries in Redis or Valkey. Every call is atomic.
--
--   KEYS  1 meta   a hash: rev (the last revision), epoch, bytes (of the log)
--         2 data   a hash: key -> record
--         3 log    a stream: <revision>-0, k: key, r: record; tombstones included
--         4 ttl    a sorted set: keys by the time at which they expire
--   ARGV  1 what to do, then what it needs
--
-- A record is a line of numbers, then who, why and the payload: see record.py. Times are
-- milliseconds, which a Lua number holds exactly until the year 287396. Revisions are contiguous:
-- a gap in the log means that it was trimmed.

local META, DATA, LOG, TTL = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Revision, previous revision, time of expiry and token of a record.
local function head(record)
  local rev, prev, _, expires, token =
    string.match(record, '^1 (%d+) (%d+) (%d+) (%d+) (%w+) ')
  if not rev then
    return redis.error_reply('PENSTOCK a record is not of this version')
  end
  return { rev = tonumber(rev), prev = tonumber(prev), expires = tonumber(expires), token = token }
end

local function live(key, time)
  local record = redis.call('HGET', DATA, key)
  if not record then
    return nil
  end
  local found = head(record)
  if found.err then
    return found
  end
  if found.expires > 0 and found.expires <= time then
    return nil
  end
  found.record = record
  return found
end

local function revision()
  return tonumber(redis.call('HGET', META, 'rev') or '0')
end

-- The record of a write with this token, among the last ones of the log.
local function find(token)
  for _, each in ipairs(redis.call('XREVRANGE', LOG, '+', '-', 'COUNT', 256)) do
    local found = head(each[2][4])
    if not found.err and found.token == token then
      return each[2][4]
    end
  end
  return nil
end

local function sweep(time)
  local keys = redis.call('ZRANGEBYSCORE', TTL, '-inf', time, 'LIMIT', 0, 50)
  if #keys > 0 then
    redis.call('HDEL', DATA, unpack(keys))
    redis.call('ZREM', TTL, unpack(keys))
  end
end

local function trim(writes, bytes)
  local size, length = redis.call('HINCRBY', META, 'bytes', 0), redis.call('XLEN', LOG)
  if length <= writes and size <= bytes then
    return
  end
  local gone, ids = 0, {}
  for _, each in ipairs(redis.call('XRANGE', LOG, '-', '+', 'COUNT', 100)) do
    if length <= 1 or (length <= writes and size - gone <= bytes) then
      break
    end
    gone = gone + #each[2][2] + #each[2][4]
    length = length - 1
    ids[#ids + 1] = each[1]
  end
  if #ids > 0 then
    redis.call('XDEL', LOG, unpack(ids))
    redis.call('HINCRBY', META, 'bytes', -gone)
  end
end

-- key, kind (p or d), payload, ttl, expect (or -1), who, why, token, again (0 or 1), channel, and
-- how many writes and bytes the log keeps
local function write()
  local key, kind, payload = ARGV[2], ARGV[3], ARGV[4]
  local ttl, expect = tonumber(ARGV[5]), tonumber(ARGV[6])
  local who, why, token = ARGV[7], ARGV[8], ARGV[9]
  local time = now()
  if ARGV[10] == '1' then -- sent again, because the answer was lost
    local done = find(token)
    if done then
      return { 1, time, done }
    end
  end
  local current = live(key, time)
  if current and current.err then
    return current
  end
  local actual = current and current.rev or 0
  if expect >= 0 and expect ~= actual then
    return { 0, actual }
  end
  if kind == 'd' and actual == 0 then
    return { 2, time }
  end
  local expires = ttl > 0 and time + ttl or 0
  redis.call('HSETNX', META, 'epoch', token)
  local rev = redis.call('HINCRBY', META, 'rev', 1)
  local record = string.format(
    '1 %.0f %.0f %.0f %.0f %s %d %d %s\n', rev, actual, time, expires, token, #who, #why, kind
  ) .. who .. why .. payload
  if kind == 'd' then
    redis.call('HDEL', DATA, key)
  else
    redis.call('HSET', DATA, key, record)
  end
  if kind == 'p' and expires > 0 then
    redis.call('ZADD', TTL, expires, key)
  else
    redis.call('ZREM', TTL, key)
  end
  redis.call('XADD', LOG, string.format('%.0f-0', rev), 'k', key, 'r', record)
  redis.call('HINCRBY', META, 'bytes', #key + #record)
  sweep(time)
  trim(tonumber(ARGV[12]), tonumber(ARGV[13]))
  redis.call('PUBLISH', ARGV[11], string.format('%.0f', rev))
  return { 1, time, record }
end

-- key
local function read()
  local found = live(ARGV[2], now())
  if found and found.err then
    return found
  end
  return { revision(), found and found.record or false }
end

-- revision from which on, how many
local function fetch()
  local entries = {}
  local found = redis.call('XRANGE', LOG, ARGV[2] .. '-0', '+', 'COUNT', ARGV[3])
  for at, each in ipairs(found) do
    entries[at] = { each[2][2], each[2][4] }
  end
  return { now(), redis.call('HGET', META, 'epoch') or '', revision(), entries }
end

if ARGV[1] == 'write' then
  return write()
elseif ARGV[1] == 'read' then
  return read()
else
  return fetch()
end
