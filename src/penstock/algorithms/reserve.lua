-- Twin of reserve and cancel in token_bucket.py, for every bucket.
--
-- Exact where the bucket is: nothing here is further away than p.ceiling and the bucket's width.

local function reserve(p, row, cost, now, patience, out)
  p.rule.decide(p, row, cost, now, 0, false, out)
  local width = cost * out.unit
  local wait, early = out.mark - now, out.retry
  if not p.paced then
    wait, early = out.retry, out.mark - now + width - p.ceiling
  end
  if patience >= 0 and wait - patience > early then
    early = wait - patience
  end
  out.overrun = false
  out.allowed = early <= 0
  if not out.allowed then
    out.retry, out.delay = early, 0
    if p.memory then
      p.rule.charge(p, row, 0, now)
    end
    return
  end
  p.rule.charge(p, row, cost, now)
  out.retry, out.delay = 0, wait
  out.room, out.reset = out.room - width, out.reset + width
end

local function cancel(p, row, cost, now, mark, kept)
  local look = {}
  p.rule.decide(p, row, 1, now, 0, false, look)
  local interval, reach = look.unit, math.max(p.capacity, look.unit)
  local finish = mark + (cost + kept) * interval
  local due = finish - reach
  if p.paced then
    due, reach = mark, interval
  end
  if kept > 0 and due > now then
    return
  end
  local tat = row[1] - (p.memory or 0)
  if tat == finish or tat - now <= reach then
    p.rule.refund(p, row, cost, now, mark, kept)
  end
end

return {reserve = reserve, cancel = cancel}
