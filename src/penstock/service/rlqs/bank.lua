-- The accounts of limits that are divided among Envoys. Twin of account.py and shares.py, which
-- say what it does and why; the names are the same.
--
-- KEYS   the key of the account, for each request
-- ARGV   for each request, packed: rate burst interval (of the limit), kind, requests, sent, proven,
--        burst, rate, provable; then holder and stream
--
-- Answers one packed value for each request: status burst rate number wanted wait nodes demand
-- total rate_out burst_out free; or an error where the value of the key is not one of ours.
--
-- The value of a key: 'rlqs1', rate burst interval free at; then for each holder its name and
-- stream, and its numbers in the order of NUMBERS.
--
-- Exact: tokens, rates and times in ms are whole numbers below 2^53, as shares.undividable demands.
-- Shares and demands are doubles, in the same order of operations as in Python.

local TTL, SLACK, REPORTS, WEIGHT, SHORTEST_SAMPLE = 15000, 2000, 5000, 0.6, 1000
local FLOOR, HELD_BACK, HELD_BACK_SPARE, RESERVE, SAME_NODE = 0.1, 0.05, 0.1, 0.1, 3000
local REPORT, LOOK, RELEASE, LEAVE, CONFIRM = 0, 1, 2, 3, 4
local ASSIGNED, UNCHANGED, CONFLICT = 0, 1, 2
local HEAD, RECORD, REQUEST, REPLY = '<sddddd', '<ssddddddddddddddd', '<ddddddddddss', '<dddddddddddd'
local NUMBERS = { 'burst', 'rate', 'number', 'finish', 'old_burst', 'old_rate', 'old_end',
  'arrived', 'demand', 'requests', 'since', 'seen', 'provable', 'told', 'interval' }
local floor, ceil, max, min, abs = math.floor, math.ceil, math.max, math.min, math.abs
local pack, unpack_from = struct.pack, struct.unpack

local function rate_out(a)
  local sum = 0
  for _, h in ipairs(a.holders) do sum = sum + max(h.rate, h.old_rate) end
  return sum
end

local function burst_out(a)
  local sum = 0
  for _, h in ipairs(a.holders) do sum = sum + max(h.burst, h.old_burst) end
  return sum
end

local function cap(a)
  a.free = max(0, min(a.free, max(0, a.burst - burst_out(a)) * a.unit))
end

local function new_holder(a, name)
  local h = { name = name, stream = '' }
  for _, field in ipairs(NUMBERS) do h[field] = 0 end
  h.demand, h.provable, h.since = -1, 1, now
  a.holders[#a.holders + 1] = h
  return h
end

local function drop(a, holder)
  for index, h in ipairs(a.holders) do
    if h == holder then
      table.remove(a.holders, index)
      return
    end
  end
end

local function clear_old(h)
  h.old_burst, h.old_rate, h.old_end = 0, 0, 0
end

local function keep_old(h, burst, rate)
  if h.burst > burst or h.rate > rate then
    h.old_burst = max(h.old_burst, h.burst)
    h.old_rate = max(h.old_rate, h.rate)
    h.old_end = max(h.old_end, h.finish)
  end
end

local function book(a, h, burst, rate)
  keep_old(h, burst, rate)
  h.burst, h.rate = burst, rate
  h.told, h.interval = rate, a.interval
  h.number = max(h.number + 1, now)
  h.finish = now + TTL + SLACK
end

-- Time ----------------------------------------------------------------------------------

local function refill(a)
  if now < a.at then
    for _, h in ipairs(a.holders) do
      h.finish = min(h.finish, now + TTL + SLACK)
      h.old_end = min(h.old_end, now + TTL + SLACK)
      h.arrived, h.since, h.seen = min(h.arrived, now), min(h.since, now), min(h.seen, now)
    end
    a.at = now
  end
  a.free = a.free + (a.rate - rate_out(a)) * (now - a.at)
  a.at = now
  cap(a)
  local left = {}
  for _, h in ipairs(a.holders) do
    if h.finish > now then
      left[#left + 1] = h
      if h.old_end <= now then clear_old(h) end
    end
  end
  a.holders = left
end

local function change(a, rate, burst, interval)
  if interval ~= a.interval then
    a.free = floor(a.free * interval / a.interval)
    for _, h in ipairs(a.holders) do
      h.rate = ceil(h.rate * interval / a.interval)
      h.old_rate = ceil(h.old_rate * interval / a.interval)
    end
  end
  a.rate, a.burst, a.interval, a.unit = rate, burst, interval, interval * 1000
  cap(a)
end

-- What the stream says --------------------------------------------------------------------

local function claimed(a, h, q)
  local sent = min(q.sent, now)
  local finish = sent + TTL + SLACK
  if q.sent == 0 or q.rate == 0 or finish <= now or (h and sent <= h.number) then
    return h
  end
  h = h or new_holder(a, q.holder)
  local before = max(h.burst, h.old_burst)
  keep_old(h, q.burst, q.rate)
  h.burst, h.rate, h.number, h.finish = q.burst, q.rate, sent, finish
  a.free = max(0, a.free - (max(h.burst, h.old_burst) - before) * a.unit)
  cap(a)
  return h
end

local function prove(h, q)
  h.arrived = max(h.arrived, min(min(q.proven, now), h.number))
  if q.provable == 1 and q.proven == h.number and h.number > 0 then
    clear_old(h)
    if q.kind == CONFIRM and h.rate == 0 and h.stream == '' then h.finish = now end
  end
end

local function count(h, q)
  local elapsed = now - h.since
  h.requests = h.requests + q.requests
  if elapsed >= SHORTEST_SAMPLE then
    local latest = h.requests * 1000 / elapsed
    if h.demand < 0 then
      h.demand = latest
    else
      h.demand = h.demand + WEIGHT * min(elapsed, REPORTS) / REPORTS * (latest - h.demand)
    end
    h.requests, h.since = 0, now
  end
  h.stream, h.seen, h.provable = q.stream, now, q.provable
end

-- What it gets ----------------------------------------------------------------------------

local function share(reach, demand, total, nodes)
  if total > reach then
    return reach * (FLOOR / nodes + (1 - FLOOR) * demand / total)
  end
  return demand + (reach - total) / nodes
end

local function fair(a, holder)
  local most, total, nodes = a.rate, 0, #a.holders
  for _, h in ipairs(a.holders) do
    if h.provable == 0 then most = a.rate * (1 - RESERVE) end
    total = total + max(0, h.demand) * a.interval
  end
  local scarce, missing = total > most, 0
  for _, h in ipairs(a.holders) do
    if h.burst > 0 then
      local part = share(most, max(0, h.demand) * a.interval, total, nodes)
      local wanted = floor(a.burst * part / a.rate)
      if scarce then wanted = floor(wanted / 2) end
      missing = missing + max(0, wanted - h.burst)
    end
  end
  if missing * a.unit > a.free then
    if scarce then
      most = most * (1 - HELD_BACK)
    else
      most = max(total, most * (1 - HELD_BACK_SPARE))
    end
  end
  local rate = floor(share(most, max(0, holder.demand) * a.interval, total, nodes))
  rate = min(max(1, rate), a.rate)
  return rate, max(1, floor(a.burst * rate / a.rate))
end

local function is_near(a, h, rate, burst, kind)
  if rate_out(a) > a.rate or burst_out(a) > a.burst then return false end
  local part, least = 50, 4
  if kind == REPORT then part, least = 200, 20 end
  if h.provable == 0 then part = 10 end
  return abs(rate - h.rate) * part <= a.rate
    and abs(burst - h.burst) * least <= max(h.burst, least)
end

local function answer(a, status, h, wanted, least)
  local out, wait, total = rate_out(a), 0, 0
  local growth = a.rate - out
  if h.burst == 0 and least > 0 and growth > 0 then
    wait = ceil((least * a.unit - a.free) / growth)
  end
  for _, each in ipairs(a.holders) do total = total + max(0, each.demand) end
  return pack(REPLY, status, h.burst, h.rate, h.number, wanted, max(0, wait), #a.holders,
    max(0, h.demand), total, out, burst_out(a), a.free)
end

local function assign(a, h, q)
  local rate, burst = fair(a, h)
  local others = rate_out(a) - max(h.rate, h.old_rate)
  local fresh = h.burst == 0 or now + SLACK > max(h.arrived, min(q.sent, now)) + TTL
  local most = max(0, a.rate - others)
  if h.demand < 0 and h.provable == 0 then
    most, burst = floor(most / 2), max(1, floor(burst / 2))
  end
  local wanted, affordable = rate, floor(a.free / a.unit)
  local least, paid
  rate = min(rate, most)
  if fresh then
    least = min(burst, max(1, floor(rate / (10 * a.interval))))
    burst = min(burst, affordable)
    paid = burst
  else
    least = 1
    burst = min(burst, h.burst + affordable)
    paid = max(0, burst - h.burst)
  end
  if burst < least or rate < 1 then
    burst, rate, paid = 0, 0, 0
  elseif h.interval ~= a.interval and burst == h.burst and rate == h.told then
    rate = max(1, rate - 1)
  end
  if not fresh and is_near(a, h, rate, burst, q.kind) then
    rate, burst, paid = h.rate, h.burst, 0
    if q.kind == LOOK then return answer(a, UNCHANGED, h, wanted, 0) end
  elseif q.kind == LOOK and burst == h.burst and rate == h.rate then
    return answer(a, UNCHANGED, h, wanted, least)
  end
  a.free = a.free - paid * a.unit
  book(a, h, burst, rate)
  return answer(a, ASSIGNED, h, wanted, least)
end

local function settle(a, q)
  refill(a)
  if q.limit_rate ~= a.rate or q.limit_burst ~= a.burst or q.interval ~= a.interval then
    change(a, q.limit_rate, q.limit_burst, q.interval)
  end
  local h
  for _, each in ipairs(a.holders) do
    if each.name == q.holder then h = each end
  end
  if h and h.stream ~= '' and h.stream ~= q.stream
    and (now - h.seen < SAME_NODE or q.kind ~= REPORT) then
    return answer(a, CONFLICT, h, 0, 0)
  end
  h = claimed(a, h, q)
  if h then
    prove(h, q)
    if h.finish <= now then
      drop(a, h)
      h = nil
    end
  end
  if q.kind == REPORT then
    h = h or new_holder(a, q.holder)
    count(h, q)
    return assign(a, h, q)
  end
  if not h then
    return answer(a, UNCHANGED, { burst = 0, rate = 0, number = 0, demand = -1 }, 0, 0)
  end
  if q.kind == LOOK then
    if now - h.seen > 2 * REPORTS then return answer(a, UNCHANGED, h, 0, 0) end
    return assign(a, h, q)
  end
  if q.kind == RELEASE then
    book(a, h, 0, 0)
    h.stream, h.demand, h.finish = '', -1, h.old_end
    if h.finish <= now then drop(a, h) end
    return answer(a, ASSIGNED, h, 0, 0)
  end
  if q.kind == LEAVE then h.stream = '' end
  return answer(a, UNCHANGED, h, 0, 0)
end

-- The keys ----------------------------------------------------------------------------------

local function load(key, q)
  local value = redis.call('GET', key)
  if not value then
    return { rate = q.limit_rate, burst = q.limit_burst, interval = q.interval,
      unit = q.interval * 1000, free = q.limit_burst * q.interval * 1000, at = now, holders = {} }
  end
  local a, mark, at = { holders = {} }, nil, nil
  mark, a.rate, a.burst, a.interval, a.free, a.at, at = unpack_from(HEAD, value)
  if mark ~= 'rlqs1' then error('not an account') end
  a.unit = a.interval * 1000
  while at <= #value do
    local h, values = {}, { unpack_from(RECORD, value, at) }
    h.name, h.stream = values[1], values[2]
    for index, field in ipairs(NUMBERS) do h[field] = values[index + 2] end
    a.holders[#a.holders + 1], at = h, values[#values]
  end
  return a
end

local function save(key, a)
  local parts, finish = { pack(HEAD, 'rlqs1', a.rate, a.burst, a.interval, a.free, a.at) }, a.at
  for _, h in ipairs(a.holders) do
    local values = {}
    for index, field in ipairs(NUMBERS) do values[index] = h[field] end
    parts[#parts + 1] = pack(RECORD, h.name, h.stream, unpack(values))
    finish = max(finish, h.finish)
  end
  local left = finish - now + ceil(a.burst * a.unit / max(1, a.rate)) + LINGER
  redis.call('SET', key, table.concat(parts), 'PX', string.format('%.0f', max(1, left)))
end

local accounts, answers = {}, {}
for index, key in ipairs(KEYS) do
  local q = {}
  q.limit_rate, q.limit_burst, q.interval, q.kind, q.requests, q.sent, q.proven, q.burst, q.rate,
    q.provable, q.holder, q.stream = unpack_from(REQUEST, ARGV[index])
  local ok, result = pcall(function()
    accounts[key] = accounts[key] or load(key, q)
    return settle(accounts[key], q)
  end)
  answers[index] = ok and result or redis.error_reply('ERR the value is not an account of ours')
end
for key, a in pairs(accounts) do save(key, a) end
return answers
