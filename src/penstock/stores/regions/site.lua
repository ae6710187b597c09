-- Applies shares to the rows of a site, or looks at them. Twin of SiteRow.apply in row.py; the rows
-- are those of regional_bucket.lua.
--
-- KEYS     two a message: the key's row, and the records of its leases
-- ARGV[1]  where in ARGV the messages begin
-- ARGV     then the policies, packed
-- ARGV     then the messages: 6 doubles, P burst rate paid finish number; P is where in ARGV the
--          policy is, finish is in microseconds since 1970; a number of 0 is a look
--
-- Answers the server's time in microseconds, then for each message 8 doubles: status burst rate
-- number left returned level demand; left in milliseconds, level in whole units, demand of the
-- instances that lease, in units a second; or an error where a value is not one of ours

local APPLIED, LOOKED, BUSY = 1, 0, 2
local floor, ceil, max = math.floor, math.ceil, math.max

-- Units that instances of the site have leased, until when at most, and their demand.
local function leased(key)
  local text = pcall('HGET', key, '')
  if type(text) ~= 'string' or #text ~= 40 then return 0, NONE, 0 end
  local out, demand, _, _, finish = words('<ddddd', text)
  if finish <= time_us then return 0, NONE, 0 end
  return out, since_1970(finish), demand
end

-- Give the row another share; the units that do not fit in any more, or nil if instances have leased more,
-- or for longer.
local function apply(p, row, m, out, last)
  local cut = row.burst - m.burst
  if out > 0 and (last > m.finish or (cut > 0 and out > p.floor_burst + m.burst)) then
    return nil
  end
  row.burst, row.rate, row.number, row.finish = m.burst, m.rate, m.number, m.finish
  p.rule.set(p, row)
  p.rule.convert(row, p.interval, 0)
  local used, returned = max(0, row[1]), 0
  if cut < 0 then
    row[1] = max(0, used + (-cut - m.paid) * p.interval)
  elseif cut > 0 then
    row[1] = max(0, used - cut * p.interval)
    returned = floor((cut * p.interval - (used - row[1])) / p.interval)
  else
    row[1] = used
  end
  if out > 0 and row[1] < last + out * p.interval then
    row[1] = last + out * p.interval -- see stores/leased/bank.py
    returned = 0
  end
  return returned
end

local function answer(text, row_key, leases_key)
  local m, place = {}, nil
  place, m.burst, m.rate, m.paid, m.finish, m.number = words('<dddddd', text)
  m.finish = since_1970(m.finish)
  local p = policy_at(place)
  local row = p.row
  local value, failed = fetch(p, row, row_key)
  if value == nil then
    return failed
  end
  local out, last, demand = leased(leases_key)
  local status, returned = LOOKED, 0
  if m.number > row.number and m.finish > 0 then
    local back = apply(p, row, m, out, last)
    status, returned = back and APPLIED or BUSY, back or 0
    failed = back and store(p, row, row_key, value)
    if failed then
      return failed
    end
  end
  local left = row.finish > 0 and floor(row.finish / 1000000) or 0
  local level = floor(max(0, p.capacity - max(0, row[1])) / p.interval)
  return pack('<dddddddd', status, row.burst, row.rate, row.number, left, returned, level, demand)
end

local answers, at = {time_us}, tonumber(ARGV[1])
for index = 1, #KEYS, 2 do
  answers[#answers + 1] = answer(ARGV[at], KEYS[index], KEYS[index + 1])
  at = at + 1
end
return answers
