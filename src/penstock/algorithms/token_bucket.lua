-- Twin of token_bucket.py, for leaky_bucket too. Words: tat
--
-- Exact: p.ceiling, the furthest that TAT can be ahead, is below 2^56 and every
-- interval a multiple of 8 where it is above 2^53. With warm-up ceiling and ramp are
-- both below 2^52, so their sum is exact to the nanosecond and the bisection always ends.

local COLD, RAMP_STEPS = 3, 1024

local function read(text, at)
  local interval, burst, debt, ceiling, paced, brief, ramp_step, ramp_start, after =
    words('<dddddddd', text, at)
  local ramp_end = NONE
  if ramp_step > 0 then
    ramp_start = since_1970(ramp_start)
    ramp_end = ramp_start + ramp_step * RAMP_STEPS
  end
  return {
    most = burst + debt, unit = interval, interval = interval, capacity = burst * interval, debt = debt,
    ceiling = ceiling, paced = paced == 1, brief = brief == 1,
    ramp_step = ramp_step, ramp_start = ramp_start, ramp_end = ramp_end,
  }, after
end

local function load(p, row, value, at, shift)
  row.dirty = false
  if not value then
    row[1] = NONE
    return true
  end
  if #value ~= at + 7 then
    return false
  end
  row[1] = words('<d', value, at) + shift
  return is_time(row[1]) or nil
end

local function save(p, row, before)
  return pack('<c0d', before, row[1] + elapsed)
end

-- T at `now` while warming up. Python's ceil(interval * 3072 / share), with
-- interval = q * share + r, so that no product is larger than the result or 3072^2.
local function ramped(p, now)
  local step = 0
  if now > p.ramp_start then
    step = math.floor((now - p.ramp_start) / p.ramp_step)
  end
  local share = RAMP_STEPS + (COLD - 1) * step
  local q = math.floor(p.interval / share)
  local r = p.interval - q * share
  return q * COLD * RAMP_STEPS + math.floor((r * COLD * RAMP_STEPS + share - 1) / share)
end

-- Units that must be there for a hit of `cost`: fewer where it may borrow.
local function needed(p, cost)
  return cost > p.debt and cost - p.debt or 1
end

-- Bisect for the first moment that allows it: T falls while time passes.
local function ramped_retry(p, tat, cost, now, extra)
  local low = now
  local high = p.ramp_end > tat and p.ramp_end or tat
  local need = (p.debt == 0 and cost or needed(p, cost)) - extra
  while high - low > 1 do
    local middle = low + math.floor((high - low) / 2)
    local interval = middle >= p.ramp_end and p.interval or ramped(p, middle)
    local capacity = p.capacity > interval and p.capacity or interval
    local behind = tat > middle and tat - middle or 0
    if need * interval <= capacity - behind then
      high = middle
    else
      low = middle
    end
  end
  return high - now
end

local function decide(p, row, cost, now, extra, take, out)
  local interval, capacity = p.interval, p.capacity
  if now < p.ramp_end then
    interval = ramped(p, now)
    capacity = capacity > interval and capacity or interval
  end
  local tat = row[1]
  if tat < now then
    tat = now
  elseif tat > now + p.ceiling then
    tat = now + p.ceiling
    if take then
      row[1] = tat
      row.dirty = true
    end
  end
  local room = capacity - (tat - now)
  local need = (p.debt == 0 and cost or needed(p, cost)) * interval
  out.unit = interval
  out.mark = tat
  if need <= room + extra * interval then
    out.delay = p.paced and tat - now or 0
    if take then
      room = room - cost * interval
      tat = tat + cost * interval
      row[1] = tat
      row.dirty = true
    end
    out.allowed = true
    out.retry = 0
    out.room = room
    out.reset = tat - now
    return true
  end
  out.allowed = false
  out.delay = 0
  out.room = room
  out.reset = tat - now
  if now >= p.ramp_end then
    out.retry = need - room - extra * interval
  else
    out.retry = ramped_retry(p, tat, cost, now, extra)
  end
  return false
end

local function charge(p, row, cost, now)
  local interval = now >= p.ramp_end and p.interval or ramped(p, now)
  local tat = row[1] > now and row[1] or now
  local highest = now + p.ceiling
  if tat <= highest and cost <= math.floor((highest - tat) / interval) then
    row[1] = tat + cost * interval
  else
    row[1] = highest
  end
  row.dirty = true
end

local function refund(p, row, cost, now, mark, kept)
  local interval = now >= p.ramp_end and p.interval or ramped(p, now)
  local tat = row[1]
  if tat <= now then
    return
  end
  local late = 0
  if mark ~= nil and now > mark and kept <= math.floor((now - mark) / interval) then
    late = now - mark - kept * interval
  end
  local back = tat - now
  if cost <= math.floor((back + late) / interval) then
    back = cost * interval - late
  end
  if back > 0 then
    row[1] = tat - back
    row.dirty = true
  end
end

return {
  letter = 'B', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
