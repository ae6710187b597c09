-- Twin of token_bucket.py, for leaky_bucket too. Value: b tat
--
-- Exact: p.ceiling, the furthest that TAT can be ahead, is below 2^56 and every
-- interval a multiple of 8 where it is above 2^53. With warm-up ceiling and ramp are
-- both below 2^52, so their sum is exact to the nanosecond and the bisection always ends.

local token_bucket = {}
rules.token_bucket = token_bucket

local COLD, RAMP_STEPS = 3, 1024

function token_bucket.prepare(p)
  if p.ramp_step > 0 then
    p.ramp_start = since_1970(p.ramp_start)
    p.ramp_end = p.ramp_start + p.ramp_step * RAMP_STEPS
  else
    p.ramp_end = NONE
  end
  return true
end

function token_bucket.blank(p)
  return {NONE, dirty = false}
end

function token_bucket.load(p, w, at, shift)
  if #w ~= at then
    return nil
  end
  return {w[at] + shift, dirty = false}
end

function token_bucket.save(p, row, w)
  w[#w + 1] = time_word(row[1])
end

-- T at `now` while warming up. Python's ceil(interval * 3072 / share), with
-- interval = q * share + r, so that no product is larger than the result or 3072^2.
local function ramped(p, now)
  local step = 0
  if now > p.ramp_start then
    step = floor((now - p.ramp_start) / p.ramp_step)
  end
  local share = RAMP_STEPS + (COLD - 1) * step
  local q = floor(p.interval / share)
  local r = p.interval - q * share
  return q * COLD * RAMP_STEPS + floor((r * COLD * RAMP_STEPS + share - 1) / share)
end

local function interval_at(p, now)
  if now >= p.ramp_end then
    return p.interval
  end
  return ramped(p, now)
end

-- Units that must be there for a hit of `cost`: fewer where it may borrow.
local function needed(p, cost)
  if p.debt == 0 then
    return cost
  end
  return cost > p.debt and cost - p.debt or 1
end

-- Bisect for the first moment that allows it: T falls while time passes.
local function ramped_retry(p, tat, cost, now, extra)
  local low = now
  local high = p.ramp_end > tat and p.ramp_end or tat
  local need = needed(p, cost) - extra
  while high - low > 1 do
    local middle = low + floor((high - low) / 2)
    local interval = interval_at(p, middle)
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

function token_bucket.decide(p, row, cost, now, extra, take, out)
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
  local need = needed(p, cost) * interval
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

function token_bucket.charge(p, row, cost, now)
  local interval = interval_at(p, now)
  local tat = row[1] > now and row[1] or now
  local highest = now + p.ceiling
  -- A TAT from a future that was taken back is above `highest`: floor is Python's //.
  row[1] = cost < floor((highest - tat) / interval) and tat + cost * interval or highest
  row.dirty = true
end

function token_bucket.refund(p, row, cost, now, mark, kept)
  local interval = interval_at(p, now)
  local tat = row[1]
  if tat <= now then
    return
  end
  local late = 0
  if mark ~= nil and now > mark and kept <= floor((now - mark) / interval) then
    late = now - mark - kept * interval
  end
  local back = tat - now
  if cost <= floor((back + late) / interval) then
    back = cost * interval - late
  end
  if back > 0 then
    row[1] = tat - back
    row.dirty = true
  end
end
