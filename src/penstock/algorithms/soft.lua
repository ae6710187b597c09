-- Twin of soft.py. Words: end ends anew, then the algorithm's own
--
-- Exact: twice the grace time is below 2^56, a multiple of 8 where it is above 2^53. No
-- grace time is NONE where Python has 0.

local function read(text, at, read_inner)
  local overrun, grace, after = words('<dd', text, at)
  local inner
  inner, after = read_inner(text, after)
  return {
    most = inner.most + overrun, unit = inner.unit, overrun = overrun, grace = grace,
    inner = inner, guarded = inner.rule, outdated = inner.outdated,
  }, after
end

local function load(p, row, value, at, shift)
  row.dirty = false
  row.inner = row.inner or {}
  if not value then
    row[1], row[2], row[3] = NONE, NONE, NONE
    return p.guarded.load(p.inner, row.inner, value)
  end
  if #value < at + 23 then
    return false
  end
  local finish, ends, anew, after = words('<ddd', value, at)
  row[1], row[2], row[3] = finish + shift, ends + shift, anew + shift
  if not (is_time(row[1]) and is_time(row[2]) and is_time(row[3]) and row[2] <= row[3]) then
    return nil
  end
  return p.guarded.load(p.inner, row.inner, value, after, shift)
end

local function save(p, row, before)
  local own = pack('<c0ddd', before, row[1] + elapsed, row[2] + elapsed, row[3] + elapsed)
  return p.guarded.save(p.inner, row.inner, own)
end

local function remember(row, ends, anew)
  local finish = anew > row.inner[1] and anew or row.inner[1]
  if row.inner.dirty or row[1] ~= finish or row[2] ~= ends or row[3] ~= anew then
    row[1] = finish
    row[2] = ends
    row[3] = anew
    row.dirty = true
  end
end

-- When the grace time ends, and when one may begin anew; after a step back, from now on.
local function spent(p, row, now)
  if row[3] <= now or row[1] <= now then
    return NONE, NONE
  end
  local latest = now + 2 * p.grace
  local anew = row[3] < latest and row[3] or latest
  return row[2] - (row[3] - anew), anew
end

-- A spent grace time is remembered longer than the units.
local function keep_reset(out, memory)
  if memory > out.reset then
    out.reset = memory
  end
end

local function decide(p, row, cost, now, extra, take, out)
  local inner, guarded = p.inner, p.guarded
  local ends, anew = spent(p, row, now)
  local hard_wait, soft_wait = -1, 0
  if cost <= inner.most then
    if guarded.decide(inner, row.inner, cost, now, extra, take, out) then
      if take then
        remember(row, ends, anew)
      end
      keep_reset(out, anew - now)
      return true
    end
    hard_wait = out.retry
  end
  if anew == NONE or now < ends then
    if guarded.decide(inner, row.inner, cost, now, extra + p.overrun, take, out) then
      out.overrun = true
      if take then
        if anew == NONE then
          ends = now + p.grace
          anew = ends + p.grace
        end
        remember(row, ends, anew)
      end
      keep_reset(out, anew - now)
      return true
    end
    soft_wait = out.retry
    -- In a grace time that runs out first, the hard limit is what counts.
    if anew == NONE or now + soft_wait < ends then
      hard_wait = soft_wait
    elseif hard_wait < 0 or now + hard_wait > anew then
      hard_wait = now + soft_wait > anew and soft_wait or anew - now
    end
  else
    if take == HIT then
      anew = now + p.grace > anew and now + p.grace or anew
    end
    guarded.decide(inner, row.inner, cost, now, extra + p.overrun, false, out)
    soft_wait = out.retry > anew - now and out.retry or anew - now
    if hard_wait < 0 or soft_wait < hard_wait then
      hard_wait = soft_wait
    end
  end
  if take then
    remember(row, ends, anew)
  end
  out.allowed = false
  out.delay = 0
  out.retry = hard_wait
  keep_reset(out, anew - now)
  return false
end

local function charge(p, row, cost, now)
  local ends, anew = spent(p, row, now)
  p.guarded.charge(p.inner, row.inner, cost, now)
  remember(row, ends, anew)
end

local function refund(p, row, cost, now, mark, kept)
  if row[1] > now then
    p.guarded.refund(p.inner, row.inner, cost, now, mark, kept)
    remember(row, row[2], row[3])
  end
end

return {
  letter = 'S', read = read, load = load, save = save,
  decide = decide, charge = charge, refund = refund,
}
