-- Twin of initial_bucket.py. Words: until when the key is remembered
--
-- Exact: that is at most p.ceiling + p.memory ahead, below 2^56, and every interval a multiple
-- of 8 where it is above 2^53.

local function read(text, at)
  local interval, burst, debt, ceiling, brief, missing, after = words('<dddddd', text, at)
  return {
    most = burst + debt, unit = interval, interval = interval, capacity = burst * interval,
    debt = debt, ceiling = ceiling, brief = brief == 1, missing = missing * interval,
    memory = burst * interval,
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

local function arrival(p, row, now)
  if row[1] <= now then
    return now + p.missing
  end
  return math.min(math.max(row[1] - p.memory, now), now + p.ceiling)
end

local function decide(p, row, cost, now, extra, take, out)
  local interval = p.interval
  local tat = arrival(p, row, now)
  local room = p.capacity - (tat - now)
  local need = cost * interval
  if p.debt > 0 then
    need = (cost > p.debt and cost - p.debt or 1) * interval
  end
  local allowed = need <= room
  out.unit = interval
  out.mark = tat
  out.delay = 0
  out.allowed = allowed
  out.retry = allowed and 0 or need - room
  if allowed and take then
    room = room - cost * interval
    tat = tat + cost * interval
  end
  if take then
    row[1] = tat + p.memory
    row.dirty = true
  end
  out.room = room
  out.reset = tat - now
  return allowed
end

local function charge(p, row, cost, now)
  local tat, highest = arrival(p, row, now), now + p.ceiling
  if cost <= math.floor((highest - tat) / p.interval) then
    tat = tat + cost * p.interval
  else
    tat = highest
  end
  row[1] = tat + p.memory
  row.dirty = true
end

local function refund(p, row, cost, now, mark, kept)
  if row[1] <= now then
    return
  end
  local tat, late = arrival(p, row, now), 0
  if mark ~= nil and now > mark and kept <= math.floor((now - mark) / p.interval) then
    late = now - mark - kept * p.interval
  end
  local back = tat - now
  if cost <= math.floor((back + late) / p.interval) then
    back = cost * p.interval - late
  end
  if back > 0 then
    row[1] = tat - back + p.memory
    row.dirty = true
  end
end

return {
  letter = 'I', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
