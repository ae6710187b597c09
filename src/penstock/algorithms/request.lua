-- One request: find its policy and its row, let the rule decide, write the row, and answer.
-- Twin of what stores/_pure.py does around an algorithm.
--
-- A lone request takes 40 % of its time for what is made anew by every call: functions, and the
-- locals that they share. Hence few of both, and the rules made when they are asked for.

local pcall = redis.pcall
local rules, policies = {}, {}

local function read_policy(text, at)
  local name, after = words('s', text, at)
  local rule = rules[name] or rule_of(name)
  rules[name] = rule
  local p
  p, after = rule.read(text, after, read_policy)
  p.name, p.rule = name, rule
  return p, after
end

local function policy_at(place)
  local p = policies[place]
  if not p then
    p = read_policy(ARGV[tonumber(place)], 1)
    p.row = {}
    p.head = pack('<c1d', p.rule.letter, now_s)
    policies[place] = p
  end
  return p
end

-- Fill the row from a value, false if there is none. Whether it is one of ours; nil if it is,
-- and makes no sense.
local function fill(p, row, value)
  if not value then
    p.rule.load(p, row)
    return true
  end
  if #value < 9 then
    return false
  end
  local letter, second, at = words('<c1d', value)
  local shift = (second - now_s) * 1000000000 - elapsed
  return letter == p.rule.letter and p.rule.load(p, row, value, at, shift)
end

-- Forget a key whose row makes no sense: it must be asked for anew. The error that says so.
local function damaged(key)
  local done = pcall('DEL', key)
  return type(done) == 'table' and done or {err = 'DAMAGED the row of this key made no sense'}
end

local function is_damaged(row)
  while row do
    if row.damaged then
      return true
    end
    row = row.inner
  end
  return false
end

-- Fill the row of a key. Its value, false if it has none; nil and an error if it is not ours.
local function fetch(p, row, key)
  local value = pcall('GET', key)
  if type(value) == 'table' then
    return nil, value
  end
  local ours = fill(p, row, value)
  if ours then
    return value
  elseif ours == nil then
    return nil, damaged(key)
  end
  return nil, {err = 'PENSTOCK the value of this key is not a row of ' .. p.name}
end

-- Set a value that means something until `finish`; an error if that fails. Redis counts expiry
-- from a whole millisecond that may lie up to two before now (6.2 takes it before the
-- script runs): count from there.
local function put(key, value, finish)
  local rest = finish > 0 and finish or 0
  local expiry = math.ceil((elapsed % 1000000 + rest) / 1000000) + 1 + LINGER
  local done = pcall('SET', key, value, 'PX', expiry)
  return done.err and done
end

-- Forget a key; an error if that fails.
local function forget(key)
  local done = pcall('DEL', key)
  return type(done) == 'table' and done
end

-- Until when a row means something: a site's also while it has a share.
local function finish_of(row)
  return row.finish and math.max(row[1], row.finish) or row[1]
end

-- Write the row of a key that had this value; an error if that fails.
local function store(p, row, key, value)
  local finish = finish_of(row)
  if finish > 0 or KEEP then
    return put(key, p.rule.save(p, row, p.head), finish)
  end
  return value and forget(key)
end

local function decide(p, row, cost, take, out)
  out.overrun = false
  if cost <= p.most then
    return p.rule.decide(p, row, cost, 0, 0, take, out)
  end
  p.rule.decide(p, row, p.most + 1, 0, 0, false, out)
  out.allowed = false
  out.retry = -1
  return false
end

local function reply(p, out, in_full)
  local allowed = out.allowed
  if p.brief and not in_full then
    return allowed and out.mark or -1 - out.mark
  end
  local flags = (allowed and 1 or 0) + (out.overrun and 2 or 0)
  if in_full or out.delay ~= 0 or out.unit ~= p.unit then
    return {flags, out.room, out.reset, out.mark, out.retry, out.delay, out.unit}
  elseif allowed then
    return {flags, out.room, out.reset, out.mark}
  end
  return {flags, out.room, out.reset, out.mark, out.retry}
end

local out = { -- filled anew by every decision
  allowed = false, room = 0, unit = 1, retry = 0, reset = 0, delay = 0, overrun = false, mark = 0,
}

-- A look, a hit, an attempt or a reservation. An attempt may not want a place that it would have to wait for
-- longer than its patience: then it takes none.
local function ask(p, key, cost, take, patience)
  if p.outdated then
    return 'refresh'
  end
  local row = p.row
  local value, failed = fetch(p, row, key)
  if value ~= nil then
    if take == RESERVE and cost <= p.most then
      rule_of('reserve').reserve(p, row, cost, 0, patience, out)
      failed = row.dirty and store(p, row, key, value)
      return failed or reply(p, out, true)
    end
    if patience and take ~= RESERVE and decide(p, row, cost, false, out) and out.delay > patience then
      return {0, out.room, out.reset, out.mark, out.delay - patience, 0, out.unit}
    end
    decide(p, row, cost, take, out)
    if is_damaged(row) then
      return damaged(key)
    end
    failed = row.dirty and store(p, row, key, value)
  end
  return failed or reply(p, out)
end

-- Charge, refund or cancel; its further arguments begin at `at`.
local function book(p, key, verb, at)
  if p.outdated then
    return 'refresh'
  end
  local row, cost = p.row, tonumber(ARGV[at])
  local value, failed = fetch(p, row, key)
  if value ~= nil then
    if verb == 'charge' then
      p.rule.charge(p, row, cost, 0)
    elseif value then
      local mark, second = nil, tonumber(ARGV[at + 1])
      if second >= 0 then
        mark = (second - now_s) * 1000000000 + tonumber(ARGV[at + 2]) - elapsed
      end
      local give = verb == 'cancel' and rule_of('reserve').cancel or p.rule.refund
      give(p, row, cost, 0, mark, tonumber(ARGV[at + 3]))
    end
    if is_damaged(row) then
      return damaged(key)
    end
    failed = row.dirty and store(p, row, key, value)
  end
  return failed or 1
end
