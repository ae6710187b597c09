-- Twin of sliding_log.py. Words: end units lag, then time1 units1 time2 units2 ..., the
-- oldest first
--
-- The hits stay packed, and one is unpacked where it is looked at: a decision costs what it
-- looks at, and some copies of the value. Their times are microseconds since 1970, as
-- every time of a server is, so that they need not be written anew when now has moved.
-- From each of them goes off the `lag`, which is what a clock that steps back adds to.
--
-- Measured (Valkey 9.1, 32 keys a call, of a server that decides 210 000 buckets a second): an
-- allowed hit takes 8 us with 10 hits in the log, 12 with 100, 37 with 1000. Looking at
-- each of 2000 takes 0.3 ms, dropping them 0.5, a refusal by lockout and soft limit, which look
-- four times, 1.3. Hence `script.MOST_HITS`.
--
-- Exact: units are at most 4 * (amount + overrun) < 2^43, times lie within one period
-- of now. Python's ring and its growing are a matter of its table and not needed here:
-- p.slots is as long as a row may grow.

local sub = string.sub

local function read(text, at)
  local amount, period, count_rejected, slots, most_used, after = words('<ddddd', text, at)
  return {
    most = amount, unit = 1, amount = amount, period = period, count_rejected = count_rejected == 1,
    slots = slots, most_used = most_used,
  }, after
end

-- row = {end, units =, lag =, hits = the value, first = where in it the oldest hit lies, count =}
local function load(p, row, value, at, shift)
  row.dirty = false
  row.damaged = false
  if not value then
    row[1], row.units, row.lag, row.hits, row.first, row.count = NONE, 0, 0, '', 1, 0
    return true
  end
  local count = (#value - at - 23) / 16
  if count < 0 or count % 1 ~= 0 or count > p.slots then
    return false
  end
  local finish, units, lag, after = words('<ddd', value, at)
  row[1], row.units, row.lag = finish + shift, units, lag
  row.hits, row.first, row.count = value, after, count
  return is_time(row[1]) and is_count(units) and is_count(lag) or nil
end

local function save(p, row, before)
  local own = pack('<c0ddd', before, row[1] + elapsed, row.units, row.lag)
  return own .. sub(row.hits, row.first, row.first + 16 * row.count - 1)
end

-- Time and units of the hit with this index, the oldest being 0.
local function hit(row, index)
  local time, units = words('<dd', row.hits, row.first + 16 * index)
  time = (time - row.lag - time_us) * 1000
  if not (is_time(time) and is_count(units)) then
    row.damaged = true
    return NONE, 0
  end
  return time, units
end

local function set_units(row, index, units)
  local at = row.first + 16 * index + 8
  row.hits = sub(row.hits, 1, at - 1) .. pack('<d', units) .. sub(row.hits, at + 8)
end

-- How far the clock has stepped back before the newest hit.
local function behind_by(p, row, now)
  local newest = row[1] - p.period
  return newest > now and newest - now or 0
end

-- Written also of a refused hit: after a step back it must stay forgotten.
local function forget_oldest(row, units)
  row.units = row.units - units
  row.damaged = row.damaged or row.units < 0
  row.first = row.first + 16
  row.count = row.count - 1
  row.dirty = true
end

-- Forget hits that have left the period, after undoing a step back.
local function drop(p, row, now)
  if row[1] <= now then
    row.units, row.lag, row.hits, row.first, row.count = 0, 0, '', 1, 0
    row.dirty = true
    return
  end
  local behind = behind_by(p, row, now)
  if behind > 0 then
    row.lag = row.lag + math.ceil(behind / 1000)
    row[1] = row[1] - behind
    row.dirty = true
  end
  while row.count > 0 do
    local time, units = hit(row, 0)
    if time + p.period > now then
      break
    end
    forget_oldest(row, units)
  end
end

local function append(p, row, cost, now)
  local time, units
  if row.count > 0 then
    time, units = hit(row, row.count - 1)
  end
  if time == now then
    set_units(row, row.count - 1, units + cost)
  else
    if row.count + 1 > p.slots then
      return false
    end
    local others = sub(row.hits, 1, row.first + 16 * row.count - 1)
    row.hits = others .. pack('<dd', time_us + now / 1000 + row.lag, cost)
    row.count = row.count + 1
  end
  row.units = row.units + cost
  row[1] = now + p.period
  row.dirty = true
  return true
end

-- Keep the newest `most` units.
local function trim(row, most)
  while row.units > most and row.count > 0 do
    local over = row.units - most
    local _, units = hit(row, 0)
    if units > over then
      set_units(row, 0, units - over)
      row.units = row.units - over
      row.dirty = true
    else
      forget_oldest(row, units)
    end
  end
end

local function decide(p, row, cost, now, extra, take, out)
  if take then
    drop(p, row, now)
  end
  local skip, gone, behind, units = 0, 0, 0, 0
  if row[1] > now then
    units = row.units
    -- Only without `take` is there anything left to step over.
    behind = behind_by(p, row, now)
    while skip < row.count do
      local time, one = hit(row, skip)
      if time - behind + p.period > now then
        break
      end
      gone = gone + one
      skip = skip + 1
    end
  end
  units = units - gone
  out.unit = 1
  out.delay = 0
  out.mark = now
  if units + cost <= p.amount + extra then
    if take then
      append(p, row, cost, now)
      units = units + cost
    end
    out.allowed = true
    out.retry = 0
    out.room = p.amount - units
    out.reset = row[1] - behind > now and row[1] - behind - now or 0
    return true
  end
  if take == HIT and p.count_rejected then
    trim(row, p.amount)
    append(p, row, cost, now)
    trim(row, p.amount)
    units = row.units
  end
  out.allowed = false
  out.room = p.amount - units
  out.reset = row[1] - behind > now and row[1] - behind - now or 0
  -- Wait for the oldest to leave until `cost` fits.
  local over = units + cost - p.amount - extra
  while skip < row.count - 1 do
    local _, one = hit(row, skip)
    over = over - one
    if over <= 0 then
      break
    end
    skip = skip + 1
  end
  -- Without any hit the cost is above the limit, and the caller says never.
  out.retry = (row.count > 0 and hit(row, skip) or now) - behind + p.period - now
  return false
end

-- Where there is more than can be kept, the oldest is forgotten: see Python.
local function charge(p, row, cost, now)
  drop(p, row, now)
  if cost == 0 then
    return
  end
  if cost > p.most_used then
    cost = p.most_used
  end
  trim(row, p.most_used - cost)
  if not append(p, row, cost, now) then
    local _, units = hit(row, 0)
    forget_oldest(row, units)
    append(p, row, cost, now)
  end
end

-- Take one hit out.
local function delete(row, index)
  row.count = row.count - 1
  if index < row.count then
    local at = row.first + 16 * index
    row.hits = sub(row.hits, 1, at - 1) .. sub(row.hits, at + 16)
  end
end

-- From the hit that took it, or from the newest ones if that is not known.
local function refund(p, row, cost, now, mark, kept)
  if row[1] <= now then
    return
  end
  drop(p, row, now)
  for index = row.count - 1, 0, -1 do
    local time, units = hit(row, index)
    if mark == nil or mark == time then
      local back = cost < units and cost or units
      row.units = row.units - back
      row.damaged = row.damaged or row.units < 0
      row.dirty = true
      cost = cost - back
      if back == units then
        delete(row, index)
      else
        set_units(row, index, units - back)
      end
      if cost == 0 or mark ~= nil then
        break
      end
    end
  end
  row[1] = row.count > 0 and hit(row, row.count - 1) + p.period or NONE
end

return {
  letter = 'H', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
