-- Twin of fixed_window.py. Value: b end used
--
-- Exact: units are at most MOST_USED = 4e12. Window ends are whole microseconds, found
-- from microseconds since 1970 (1.7e15 < 2^53); relative to now they are multiples of
-- 1000 ns and below 2^56, for windows of up to a year and the next one's end.

local fixed_window = {}
rules.fixed_window = fixed_window

local MOST_USED = 4 * 10 ^ 12

-- Where the window ends that holds now, and the next one.
function fixed_window.prepare(p)
  if p.epoch then
    local moment = now_s * 1000000 + now_us
    p.finish = (p.epoch - moment % p.epoch) * 1000
    p.next_finish = p.finish + p.epoch * 1000
  elseif p.calendar then
    local bounds = p.calendar
    for index = 1, #bounds - 2 do
      if since_1970(bounds[index]) <= 0 and since_1970(bounds[index + 1]) > 0 then
        p.finish = since_1970(bounds[index + 1])
        p.next_finish = since_1970(bounds[index + 2])
        return true
      end
    end
    return false
  end
  return true
end

function fixed_window.blank(p)
  return {NONE, 0, dirty = false}
end

function fixed_window.load(p, w, at, shift)
  if #w ~= at + 1 then
    return nil
  end
  return {w[at] + shift, w[at + 1], dirty = false}
end

function fixed_window.save(p, row, w)
  w[#w + 1] = time_word(row[1])
  w[#w + 1] = whole(row[2])
end

-- End of the window that this key is counted in at `now`.
local function open_until(p, row, now)
  local latest = p.next_finish or now + p.period
  if row[1] > now then
    return row[1] < latest and row[1] or latest
  end
  return p.finish or latest
end

function fixed_window.decide(p, row, cost, now, extra, take, out)
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

function fixed_window.charge(p, row, cost, now)
  local used = row[1] > now and row[2] or 0
  row[1] = open_until(p, row, now)
  row[2] = cost < MOST_USED - used and used + cost or MOST_USED
  row.dirty = true
end

function fixed_window.refund(p, row, cost, now, mark, kept)
  if row[1] <= now or (mark ~= nil and mark ~= row[1]) then
    return
  end
  row[2] = row[2] > cost and row[2] - cost or 0
  row.dirty = true
end
