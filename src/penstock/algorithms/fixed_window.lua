-- Twin of fixed_window.py. Words: end used
--
-- Exact: units are at most MOST_USED = 4e12. Window ends are whole microseconds, found
-- from microseconds since 1970 (1.7e15 < 2^53); relative to now they are multiples of
-- 1000 ns and below 2^56, for windows of up to a year and the next one's end.

local MOST_USED = 4 * 10 ^ 12

-- A policy has a period from the first hit on, or one from the epoch on, or the bounds of
-- some calendar windows. For the latter two: where the window ends that holds now, and the
-- next one.
local function read(text, at)
  local amount, period, epoch, bounds, after = words('<dddd', text, at)
  local p = {most = amount, unit = 1, amount = amount, period = period}
  if epoch > 0 then
    p.finish = (epoch - time_us % epoch) * 1000
    p.next_finish = p.finish + epoch * 1000
  end
  p.outdated = bounds > 0
  for index = after, after + 8 * (bounds - 3), 8 do
    local start, finish, next_finish = words('<ddd', text, index)
    if since_1970(start) <= 0 and since_1970(finish) > 0 then
      p.finish = since_1970(finish)
      p.next_finish = since_1970(next_finish)
      p.outdated = false
    end
  end
  return p, after + 8 * bounds
end

local function load(p, row, value, at, shift)
  row.dirty = false
  if not value then
    row[1] = NONE
    row[2] = 0
    return true
  end
  if #value ~= at + 15 then
    return false
  end
  local finish, used = words('<dd', value, at)
  row[1] = finish + shift
  row[2] = used
  return is_time(row[1]) and is_count(used) or nil
end

local function save(p, row, before)
  return pack('<c0dd', before, row[1] + elapsed, row[2])
end

-- End of the window that this key is counted in at `now`.
local function open_until(p, row, now)
  local latest = p.next_finish or now + p.period
  if row[1] > now then
    return row[1] < latest and row[1] or latest
  end
  return p.finish or latest
end

local function decide(p, row, cost, now, extra, take, out)
  local finish = open_until(p, row, now)
  local used = row[1] > now and row[2] or 0
  out.unit = 1
  out.delay = 0
  out.mark = finish
  out.reset = used > 0 and finish - now or 0
  if used + cost <= p.amount + extra then
    if take then
      used = used + cost
      row[1] = finish
      row[2] = used
      row.dirty = true
      out.reset = finish - now
    end
    out.allowed = true
    out.retry = 0
    out.room = p.amount - used
    return true
  end
  if take and row[1] > finish then
    row[1] = finish
    row.dirty = true
  end
  out.allowed = false
  out.retry = finish - now
  out.room = p.amount - used
  return false
end

local function charge(p, row, cost, now)
  local used = row[1] > now and row[2] or 0
  row[1] = open_until(p, row, now)
  row[2] = cost < MOST_USED - used and used + cost or MOST_USED
  row.dirty = true
end

local function refund(p, row, cost, now, mark, kept)
  if row[1] <= now or (mark ~= nil and mark ~= row[1]) then
    return
  end
  row[2] = row[2] > cost and row[2] - cost or 0
  row.dirty = true
end

return {
  letter = 'F', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
