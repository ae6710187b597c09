-- The home of regions: the roster, and the accounts of limits that are divided among them. Twin of
-- roster.py, account.py and law.py, which say what it does and why; the names are the same.
--
-- KEYS     the roster; then the key of the account, for each request
-- ARGV[1]  packed: lease slack memory, fence, floor, granted, told; then region and site
-- ARGV     then for each request, packed: rate burst span (of the limit), kind demand number burst
--          rate left returned
--
-- Answers, packed: now, status, granted, reserved, opens; then for each request, packed: burst rate
-- paid number lent_rate lent_burst free holders; or an error where the value is not one of ours.
-- If the status is not JOINED, there are no answers to requests: nothing was done.
--
-- The roster is a hash: the field '' is when it opens, and told; each region's has its numbers and its site.
-- The value of an account: 'home1', rate burst span free at lendable rate and burst; then for each
-- holder its name and its numbers in the order of NUMBERS.

local WHOLE, EQUALLY, NEAR = 1000000, 0.1, 200
local REPORT, CONFIRM = 0, 1
local JOINED, TAKEN, STALE, TOO_MUCH = 0, 1, 2, 3
local HEAD, RECORD = '<sddddddd', '<sdddddddddd'
local MEMBER, REQUEST, REPLY = '<dddddddds', '<dddddddddd', '<dddddddd'
local NUMBERS = { 'burst', 'rate', 'number', 'finish', 'old_burst', 'old_rate', 'old_end',
  'proven', 'demand', 'seen' }
local floor, ceil, max, min, abs = math.floor, math.ceil, math.max, math.min, math.abs
local pack, unpack_from = struct.pack, struct.unpack
local LEASE, SLACK, MEMORY, fence, own_floor, granted, told, region, site =
  unpack_from('<dddddddss', ARGV[1])
local whole = LEASE + SLACK

-- The roster ------------------------------------------------------------------------------

local function reserved(m)
  return now < m.old_until and max(m.floor, m.old_floor) or m.floor
end

local function may_use(m)
  return now >= m.usable and m.floor or min(m.floor, m.before)
end

local function read_member(text)
  local m = {}
  m.floor, m.fence, m.seen, m.counted, m.before, m.usable, m.old_floor, m.old_until, m.site =
    unpack_from(MEMBER, text)
  return m
end

-- The status, the floor that may be used, the sum of all floors, and the floors of all regions.
local function join(key)
  local opens, before, members, fields = nil, 0, {}, redis.call('HGETALL', key)
  for at = 1, #fields, 2 do
    if fields[at] == '' then
      opens, before = unpack_from('<dd', fields[at + 1])
    else
      members[fields[at]] = read_member(fields[at + 1])
    end
  end
  local is_new = not opens
  opens = opens or now + whole
  if is_new or (now < opens and not members[region] and told > before) then
    before = max(before, told)
    redis.call('HSET', key, '', pack('<dd', opens, before))
  end
  local m, others, counted, floors = members[region], 0, 0, {}
  for name, each in pairs(members) do
    floors[name] = reserved(each)
    counted = counted + each.counted
    if name ~= region then others = others + floors[name] end
  end
  if m and m.site ~= site and abs(now - m.seen) < whole then
    return TAKEN, 0, others + reserved(m), opens
  end
  if m and m.site == site and fence < m.fence then
    return STALE, 0, others + reserved(m), opens
  end
  if not m then counted = counted + granted end
  floors[''] = max(0, before - counted)
  local absent = granted < own_floor and floors[''] or 0
  if others + own_floor + absent > WHOLE then
    return TOO_MUCH, granted, others + own_floor + absent, opens
  end
  if not m then
    m = { floor = own_floor, counted = granted, before = granted, usable = now, old_floor = 0,
      old_until = 0 }
    if granted < own_floor then m.usable = now + whole end
  elseif own_floor > m.floor then
    m.before, m.usable, m.floor = granted, now + whole, own_floor
  elseif own_floor < m.floor then
    m.old_floor, m.old_until, m.floor = reserved(m), now + whole, own_floor
  end
  m.site, m.fence, m.seen = site, fence, now
  redis.call('HSET', key, region, pack(MEMBER, m.floor, m.fence, m.seen, m.counted, m.before,
    m.usable, m.old_floor, m.old_until, m.site))
  floors[region] = reserved(m)
  return JOINED, may_use(m), others + floors[region] + floors[''], opens, floors,
    before > 0 and opens or 0
end

-- Accounts --------------------------------------------------------------------------------

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
  a.free = max(0, min(a.free, max(0, a.burst - burst_out(a)) * a.span))
end

local function new_holder(a)
  local h = { name = region }
  for _, field in ipairs(NUMBERS) do h[field] = 0 end
  h.demand = -1
  a.holders[#a.holders + 1] = h
  return h
end

local function keep_old(h, burst, rate)
  if h.burst > burst or h.rate > rate then
    h.old_burst = max(h.old_burst, h.burst)
    h.old_rate = max(h.old_rate, h.rate)
    h.old_end = max(h.old_end, h.finish)
  end
end

local function refill(a, opens)
  if a.free < 0 then return end
  if now < a.at then
    for _, h in ipairs(a.holders) do
      h.finish, h.old_end = min(h.finish, now + whole), min(h.old_end, now + whole)
      h.seen = min(h.seen, now)
    end
    a.at = now
  end
  a.free = a.free + (a.rate - rate_out(a)) * (now - max(a.at, min(now, opens)))
  a.at = now
  cap(a)
  local left = {}
  for _, h in ipairs(a.holders) do
    if h.finish > now then
      left[#left + 1] = h
      if h.old_end <= now then h.old_burst, h.old_rate, h.old_end = 0, 0, 0 end
    end
  end
  a.holders = left
end

local function change(a, q, floors, empty)
  local rate, burst = q.limit_rate, q.limit_burst
  for _, each in pairs(floors) do
    rate = rate - floor(q.limit_rate * each / WHOLE)
    burst = burst - floor(q.limit_burst * each / WHOLE)
  end
  if a.free < 0 then
    a.free, a.at = min(max(0, burst) * q.span, max(0, now - empty) * max(0, rate)), now
  end
  a.limit_rate, a.limit_burst, a.span = q.limit_rate, q.limit_burst, q.span
  a.rate, a.burst = max(0, rate), max(0, burst)
  cap(a)
end

local function claimed(a, h, q)
  if q.number == 0 or q.left <= 0 or q.burst + q.rate == 0 or (h and q.number <= h.number) then
    return h
  end
  h = h or new_holder(a)
  local before = max(h.burst, h.old_burst)
  keep_old(h, q.burst, q.rate)
  h.burst, h.rate, h.number, h.finish = q.burst, q.rate, q.number, now + q.left + SLACK
  a.free = max(0, a.free - (max(h.burst, h.old_burst) - before) * a.span)
  cap(a)
  return h
end

local function prove(a, h, q)
  if q.number ~= h.number or h.proven >= h.number then return end
  h.proven = h.number
  h.old_burst, h.old_rate, h.old_end = 0, 0, 0
  if q.kind == CONFIRM then
    a.free = a.free + q.returned * a.span
    cap(a)
  end
end

local function fair(a, holder, floors)
  local total, own = 0, 0
  for _, h in ipairs(a.holders) do
    local excess = max(0, h.demand - floor(a.limit_rate * (floors[h.name] or 0) / WHOLE))
    total = total + excess
    if h == holder then own = excess end
  end
  local part
  if total > a.rate then
    part = a.rate * (EQUALLY / #a.holders + (1 - EQUALLY) * own / total)
  else
    part = own + (a.rate - total) / #a.holders
  end
  local rate = min(floor(part), a.rate)
  return rate, floor(a.burst * rate / max(1, a.rate))
end

local function is_near(a, h, rate, burst)
  if rate_out(a) > a.rate or burst_out(a) > a.burst then return false end
  return abs(rate - h.rate) * NEAR <= a.rate and abs(burst - h.burst) * NEAR <= a.burst
end

local function answer(a, h, paid)
  return pack(REPLY, h.burst, h.rate, paid, h.number, rate_out(a), burst_out(a), a.free,
    #a.holders)
end

local function lend(a, h, floors, learning)
  local rate, burst = fair(a, h, floors)
  if learning then rate, burst = min(rate, h.rate), min(burst, h.burst) end
  rate = max(0, min(rate, a.rate - (rate_out(a) - max(h.rate, h.old_rate))))
  burst = max(0, min(burst, a.burst - (burst_out(a) - max(h.burst, h.old_burst))))
  if is_near(a, h, rate, burst) then rate, burst = h.rate, h.burst end
  local paid = max(0, min(burst - h.burst, floor(a.free / a.span)))
  keep_old(h, burst, rate)
  a.free = a.free - paid * a.span
  h.burst, h.rate = burst, rate
  h.number = max(h.number + 1, now)
  h.finish = now + whole
  cap(a)
  return answer(a, h, paid)
end

local function settle(a, q, floors, opens, empty)
  refill(a, opens)
  change(a, q, floors, empty)
  local h
  for _, each in ipairs(a.holders) do
    if each.name == region then h = each end
  end
  h = claimed(a, h, q)
  if h then prove(a, h, q) end
  if q.kind == REPORT then
    h = h or new_holder(a)
    local elapsed = now - h.seen
    if h.demand < 0 or elapsed >= MEMORY then
      h.demand = q.demand
    else
      h.demand = h.demand + (q.demand - h.demand) * elapsed / MEMORY
    end
    h.seen = now
    return lend(a, h, floors, now < opens)
  end
  return answer(a, h or { burst = 0, rate = 0, number = 0 }, 0)
end

-- The keys --------------------------------------------------------------------------------

local function load(key)
  local value = redis.call('GET', key)
  if not value then return { free = -1, at = now, holders = {} } end
  local a, mark, at = { holders = {} }, nil, nil
  mark, a.limit_rate, a.limit_burst, a.span, a.free, a.at, a.rate, a.burst, at =
    unpack_from(HEAD, value)
  if mark ~= 'home1' then error('not an account') end
  while at <= #value do
    local h, values = {}, { unpack_from(RECORD, value, at) }
    h.name = values[1]
    for index, field in ipairs(NUMBERS) do h[field] = values[index + 1] end
    a.holders[#a.holders + 1], at = h, values[#values]
  end
  return a
end

local function save(key, a)
  local parts = { pack(HEAD, 'home1', a.limit_rate, a.limit_burst, a.span, a.free, a.at, a.rate,
    a.burst) }
  local finish = a.at
  for _, h in ipairs(a.holders) do
    local values = {}
    for index, field in ipairs(NUMBERS) do values[index] = h[field] end
    parts[#parts + 1] = pack(RECORD, h.name, unpack(values))
    finish = max(finish, h.finish)
  end
  local left = finish - now + ceil(a.burst * a.span / max(1, a.rate)) + LINGER
  redis.call('SET', key, table.concat(parts), 'PX', string.format('%.0f', max(1, left)))
end

local status, may, sum, opens, floors, empty = join(KEYS[1])
local answers = { pack('<ddddd', now, status, may, sum, opens) }
if status ~= JOINED then return answers end
local accounts = {}
for index = 2, #KEYS do
  local key, q = KEYS[index], {}
  q.limit_rate, q.limit_burst, q.span, q.kind, q.demand, q.number, q.burst, q.rate, q.left,
    q.returned = unpack_from(REQUEST, ARGV[index])
  local ok, result = pcall(function()
    accounts[key] = accounts[key] or load(key)
    return settle(accounts[key], q, floors, opens, empty)
  end)
  answers[index] = ok and result or redis.error_reply('ERR the value is not an account of ours')
end
for key, a in pairs(accounts) do save(key, a) end
return answers
