-- Slots of one key as leases: who holds one, until when, and whose turn it is.
--
-- KEYS  held: a sorted set of holders by the time at which their lease ends
--       seen: a sorted set of processes that wait, by the time until which that is believed
--       line: for each class of priorities, from the one that may use the fewest slots to
--             the one that may use all, a sorted set of the processes that wait by the
--             time at which they began to
-- ARGV  what is asked, and then
--       ask      id, lease, process, stay, class, how many slots each class may use
--       renew    lease, ids...      -> for each 1, or 0 if it has ended
--       enrol    lease, ids...      -> for each 1: holders that were let in without being asked
--       release  ids...             -> how many of them were held
--
-- Times are microseconds by the server's clock: since 1970 they are exact in a double until
-- the year 2255. An answer to ask is {1 or 0, how many were held, how many are before it}.
-- Asked again with the same id, it answers the same, so that a lost answer does no harm.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local held, seen = KEYS[1], KEYS[2]
local verb = ARGV[1]
local LINGER = 10000 -- milliseconds, longer than anybody says it stays

local function text(number)
  return string.format('%.0f', number)
end

local function hold(id, lease)
  redis.call('ZADD', held, text(now + lease), id)
end

local function keep_held()
  local last = redis.call('ZRANGE', held, -1, -1, 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIRE', held, text(math.ceil((tonumber(last[2]) - now) / 1000) + 1))
  end
end

local function forget(process)
  redis.call('ZREM', seen, process)
  for n = 3, #KEYS do
    redis.call('ZREM', KEYS[n], process)
  end
end

redis.call('ZREMRANGEBYSCORE', held, '-inf', text(now))

if verb == 'release' then
  local released = 0
  for n = 2, #ARGV do
    released = released + redis.call('ZREM', held, ARGV[n])
  end
  return released
end

if verb ~= 'ask' then
  local lease, answers = tonumber(ARGV[2]), {}
  for n = 3, #ARGV do
    if verb == 'enrol' or redis.call('ZSCORE', held, ARGV[n]) then
      hold(ARGV[n], lease)
      answers[#answers + 1] = 1
    else
      answers[#answers + 1] = 0
    end
  end
  keep_held()
  return answers
end

local id, lease, process = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local stay, class = tonumber(ARGV[5]), tonumber(ARGV[6])
local count = redis.call('ZCARD', held)

if redis.call('ZSCORE', held, id) then
  hold(id, lease)
  keep_held()
  return {1, count - 1, 0}
end

for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', text(now))) do
  forget(gone)
end

local since
for n = 3, #KEYS do
  local score = redis.call('ZSCORE', KEYS[n], process)
  if score then
    since = tonumber(score)
  end
end

-- Each process that began to wait earlier, and may use a slot that is free, is left one.
local ahead = 0
for n = 3, #KEYS do
  if tonumber(ARGV[4 + n]) > count then
    ahead = ahead + redis.call('ZCOUNT', KEYS[n], '-inf', since and '(' .. text(since) or '+inf')
  end
end

if count + ahead < tonumber(ARGV[6 + class]) then
  hold(id, lease)
  keep_held()
  if since then
    forget(process)
  end
  return {1, count, 0}
end

if stay > 0 then
  forget(process)
  redis.call('ZADD', KEYS[2 + class], text(since or now), process)
  redis.call('ZADD', seen, text(now + stay), process)
  redis.call('PEXPIRE', KEYS[2 + class], LINGER)
  redis.call('PEXPIRE', seen, LINGER)
end
return {0, count, ahead}
