-- The driver: decides a batch, each decision by its policy, in order. Twin of what
-- stores/_pure.py does around an algorithm.
--
-- KEYS     one a request; a key may come twice and then sees what came before
-- ARGV[1]  the policies, as JSON
-- ARGV[2]  the time, in microseconds since 1970, after which nothing is to be done; 0: none
-- ARGV     then six for each key: number of its policy (from 0), verb, cost (at most 2^53), the
--          mark of the decision that took it ('seconds:nanoseconds', '-' if not known) and the
--          units kept, both for a refund, and its size: 1, or for the first of a group that
--          passes as a whole or not at all, its number of members, all of them hits
--
-- Answers: the server's time in seconds and microseconds, then one a key: for hit and peek the
-- whole numbers
--   allowed, room, unit, retry (-1: never), reset, delay, overrun, mark's seconds, its ns
-- for charge, refund and reset 1; 'refresh' where the policy's windows do not cover the
-- server's time, and nothing was done; 'spared' for a member that would have passed, of a group
-- that did not; an error where the key's value is not of ours. Only the time, if it is too late.
-- Nothing is left behind that means nothing: what has run out is deleted, the rest expires.

local deadline = tonumber(ARGV[2])
if deadline > 0 and now_s * 1000000 + now_us > deadline then
  return {now_s, now_us}
end

local policies = cjson.decode(ARGV[1])
for index = 1, #policies do
  local p = policies[index]
  p.decided_by = rule_of(p)
  p.outdated = not p.decided_by.prepare(p)
end

local second = whole(now_s)
local match, gmatch = string.match, string.gmatch

-- The numbers of a value, '-' as NONE; an empty table if it has others.
local function numbers(value)
  local first, only = match(value, '^(%d+) (%-?%d+)$')
  if first then -- a bucket's, which is most of them
    return {tonumber(first), tonumber(only)}
  end
  local words, count = {}, 0
  for word in gmatch(value, '%S+') do
    local number = word == '-' and NONE or tonumber(word)
    if not number then
      return {}
    end
    count = count + 1
    words[count] = number
  end
  return words
end

-- The row of a key, and whether there is one; nil and an error if it is not one of ours.
local function fetch(p, key)
  local value = redis.pcall('GET', key)
  if not value then
    return p.decided_by.blank(p), false
  end
  if type(value) == 'table' then
    return nil, value
  end
  local words = numbers(value)
  local row = words[2]
    and p.decided_by.load(p, words, 2, (words[1] - now_s) * 1000000000 - elapsed)
  if not row then
    return nil, {err = 'PENSTOCK the value of this key is not a row of ' .. p.rule}
  end
  return row, true
end

-- Write the row; nil, or the error. Redis counts expiry from a whole millisecond that may
-- lie up to two before now (6.2 takes it before the script runs): count from there.
local function store(p, key, row, exists)
  if row[1] <= 0 and not KEEP then
    if exists then
      redis.call('DEL', key)
    end
    return nil
  end
  local words = {second}
  p.decided_by.save(p, row, words)
  local rest = row[1] > 0 and row[1] or 0
  local expiry = ceil((elapsed % 1000000 + rest) / 1000000) + 1 + LINGER
  local done = redis.pcall('SET', key, table.concat(words, ' '), 'PX', whole(expiry))
  return done.err and done or nil
end

local function reply(out)
  local mark = out.mark + elapsed
  local seconds = floor(mark / 1000000000)
  return {
    out.allowed and 1 or 0,
    out.room,
    out.unit,
    out.retry,
    out.reset,
    out.delay,
    out.overrun and 1 or 0,
    now_s + seconds,
    mark - seconds * 1000000000,
  }
end

local out = { -- filled anew by every decision
  allowed = false, room = 0, unit = 1, retry = 0, reset = 0, delay = 0, overrun = false, mark = 0,
}

local function attempt(p, row, cost, take)
  out.overrun = false
  if cost > p.most then
    p.decided_by.decide(p, row, p.most + 1, 0, 0, false, out)
    out.allowed = false
    out.retry = -1
  else
    p.decided_by.decide(p, row, cost, 0, 0, take, out)
  end
  return out.allowed
end

local function decide(p, key, cost, take)
  local row, exists = fetch(p, key)
  if not row then
    return exists
  end
  attempt(p, row, cost, take)
  local failed = row.dirty and store(p, key, row, exists)
  return failed or reply(out)
end

local function book(p, key, verb, cost, mark, kept)
  local row, exists = fetch(p, key)
  if not row then
    return exists
  end
  if verb == 'charge' then
    p.decided_by.charge(p, row, cost, 0)
  elseif exists then
    local at
    local seconds, nanoseconds = match(mark, '^(%d+):(%d+)$')
    if seconds then
      at = (tonumber(seconds) - now_s) * 1000000000 + tonumber(nanoseconds) - elapsed
    end
    p.decided_by.refund(p, row, cost, 0, at, kept)
  end
  local failed = row.dirty and store(p, key, row, exists)
  return failed or 1
end

local answers = {now_s, now_us}

local function group(first, size)
  for index = first, first + size - 1 do
    if policies[tonumber(ARGV[6 * index - 3]) + 1].outdated then
      for other = first, first + size - 1 do
        answers[other + 2] = 'refresh'
      end
      return
    end
  end
  local rows, found, passed, all = {}, {}, {}, true
  local function spare(but, failed)
    for index = first, first + size - 1 do
      answers[index + 2] = index == but and failed or 'spared'
    end
  end
  for index = first, first + size - 1 do
    local p = policies[tonumber(ARGV[6 * index - 3]) + 1]
    local row, exists = fetch(p, KEYS[index])
    if not row then
      return spare(index, exists)
    end
    rows[index], found[index] = row, exists
    passed[index] = attempt(p, row, tonumber(ARGV[6 * index - 1]), true)
    answers[index + 2] = reply(out)
    all = all and passed[index]
  end
  for index = first, first + size - 1 do
    if not all and passed[index] then
      answers[index + 2] = 'spared'
    elseif rows[index].dirty then
      local p = policies[tonumber(ARGV[6 * index - 3]) + 1]
      local failed = store(p, KEYS[index], rows[index], found[index])
      if failed then
        return spare(index, failed)
      end
    end
  end
end

local index = 1
while index <= #KEYS do
  local key, at = KEYS[index], 6 * index - 3
  local p = policies[tonumber(ARGV[at]) + 1]
  local verb, cost, size = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 5])
  if size > 1 then
    group(index, size)
  elseif verb == 'reset' then
    redis.call('DEL', key)
    answers[index + 2] = 1
  elseif p.outdated then
    answers[index + 2] = 'refresh'
  elseif verb == 'hit' or verb == 'peek' then
    answers[index + 2] = decide(p, key, cost, verb == 'hit')
  else
    answers[index + 2] = book(p, key, verb, cost, ARGV[at + 3], tonumber(ARGV[at + 4]))
  end
  index = index + size
end
return answers
