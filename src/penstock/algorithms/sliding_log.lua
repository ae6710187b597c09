-- Twin of sliding_log.py. Value: b end time1 units1 time2 units2 ..., the oldest first
--
-- Exact: units are at most 4 * (amount + overrun) < 2^43, times lie within one period
-- of now. Python's ring and its growing are a matter of its table and not needed here:
-- hits lie in two lists, `first` to `last`, and p.slots is as long as a row may grow.

local sliding_log = {}
rules.sliding_log = sliding_log

function sliding_log.prepare(p)
  return true
end

function sliding_log.blank(p)
  return {NONE, times = {}, costs = {}, first = 1, last = 0, units = 0}
end

function sliding_log.load(p, w, at, shift)
  if #w < at or (#w - at) % 2 ~= 0 then
    return nil
  end
  local times, costs, last, units = {}, {}, 0, 0
  for index = at + 1, #w, 2 do
    last = last + 1
    times[last] = w[index] + shift
    costs[last] = w[index + 1]
    units = units + w[index + 1]
  end
  return {w[at] + shift, times = times, costs = costs, first = 1, last = last, units = units}
end

function sliding_log.save(p, row, w)
  local at = #w + 1
  w[at] = time_word(row[1])
  for index = row.first, row.last do
    w[at + 1] = time_word(row.times[index])
    w[at + 2] = whole(row.costs[index])
    at = at + 2
  end
end

-- How far the clock has stepped back before the newest hit.
local function behind_by(p, row, now)
  local newest = row[1] - p.period
  return newest > now and newest - now or 0
end

-- Written also of a refused hit: after a step back it must stay forgotten.
local function forget_oldest(row)
  row.units = row.units - row.costs[row.first]
  row.first = row.first + 1
  row.dirty = true
end

-- Forget hits that have left the period, after undoing a step back.
local function drop(p, row, now)
  if row[1] <= now then
    row.first, row.last, row.units = 1, 0, 0
    row.dirty = true
    return
  end
  local behind = behind_by(p, row, now)
  if behind > 0 then
    for index = row.first, row.last do
      row.times[index] = row.times[index] - behind
    end
    row[1] = row[1] - behind
    row.dirty = true
  end
  while row.first <= row.last and row.times[row.first] + p.period <= now do
    forget_oldest(row)
  end
end

local function append(p, row, cost, now)
  local last = row.last
  if row.first <= last and row.times[last] == now then
    row.costs[last] = row.costs[last] + cost
  else
    if last - row.first + 2 > p.slots then
      return false
    end
    row.last = last + 1
    row.times[row.last] = now
    row.costs[row.last] = cost
  end
  row.units = row.units + cost
  row[1] = now + p.period
  row.dirty = true
  return true
end

-- Keep the newest `amount` units.
local function trim(p, row)
  while row.units > p.amount do
    local over = row.units - p.amount
    if row.costs[row.first] > over then
      row.costs[row.first] = row.costs[row.first] - over
      row.units = row.units - over
      row.dirty = true
    else
      forget_oldest(row)
    end
  end
end

function sliding_log.decide(p, row, cost, now, extra, take, out)
  if take then
    drop(p, row, now)
  end
  local skip, gone, behind, units = row.first, 0, 0, 0
  if row[1] > now then
    units = row.units
    -- Only without `take` is there anything left to step over.
    behind = behind_by(p, row, now)
    while skip <= row.last and row.times[skip] - behind + p.period <= now do
      gone = gone + row.costs[skip]
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
  if take and p.count_rejected then
    trim(p, row)
    append(p, row, cost, now)
    trim(p, row)
    skip = row.first
    units = row.units
  end
  out.allowed = false
  out.room = p.amount - units
  out.reset = row[1] - behind > now and row[1] - behind - now or 0
  -- Wait for the oldest to leave until `cost` fits.
  local over = units + cost - p.amount - extra
  while skip < row.last do
    over = over - row.costs[skip]
    if over <= 0 then
      break
    end
    skip = skip + 1
  end
  -- Without any hit the cost is above the limit, and the caller says never.
  out.retry = (row.times[skip] or now) - behind + p.period - now
  return false
end

function sliding_log.charge(p, row, cost, now)
  drop(p, row, now)
  if cost > p.most_used - row.units then
    cost = p.most_used - row.units
  end
  if cost <= 0 or append(p, row, cost, now) then
    return
  end
  -- As many hits as the limit can hold, and more: book it with the newest.
  row.costs[row.last] = row.costs[row.last] + cost
  row.units = row.units + cost
  row.dirty = true
end

-- From the hit that took it, or from the newest ones if that is not known.
function sliding_log.refund(p, row, cost, now, mark, kept)
  if row[1] <= now then
    return
  end
  drop(p, row, now)
  for index = row.last, row.first, -1 do
    if mark == nil or mark == row.times[index] then
      local back = cost < row.costs[index] and cost or row.costs[index]
      row.costs[index] = row.costs[index] - back
      row.units = row.units - back
      row.dirty = true
      cost = cost - back
      if row.costs[index] == 0 then
        table.remove(row.times, index)
        table.remove(row.costs, index)
        row.last = row.last - 1
        row[1] = row.first <= row.last and row.times[row.last] + p.period or NONE
      end
      if cost == 0 or mark ~= nil then
        return
      end
    end
  end
end
