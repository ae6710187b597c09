-- A token bucket whose rate and burst are those of a site: its floor, and until `finish` a share
-- that it was lent. Twin of SiteRow in stores/regions/row.py, which says how; the bucket
-- itself is token_bucket.lua. Words: tat interval burst rate finish number
--
-- Exact: as a token bucket with the interval of the floor, the longest there is;
-- law.undividable refuses what is not. A conversion from one interval to another is rounded up.

local bucket = rule_of('token_bucket')

local function read(text, at)
  local span, floor_rate, floor_burst, rate, burst, after = words('<ddddd', text, at)
  local interval = math.ceil(span / floor_rate)
  return {
    span = span, floor_rate = floor_rate, floor_burst = floor_burst, paced = false,
    unit = interval, whole = math.ceil(span / rate),
    ceiling = 2 * burst * interval, debt = 0, brief = false, ramp_step = 0, ramp_start = 0, ramp_end = NONE,
  }, after
end

-- The numbers of the bucket, with the share of this row.
local function set(p, row)
  p.interval = math.ceil(p.span / (p.floor_rate + row.rate))
  p.most = p.floor_burst + row.burst
  p.capacity = p.most * p.interval
end

-- What was used until `moment`, by the interval that holds from then on.
local function convert(row, interval, moment)
  if interval ~= row.interval and row[1] > moment then
    row[1] = moment + math.ceil((row[1] - moment) * interval / row.interval) + 1
  end
  row.interval = interval
end

local function load(p, row, value, at, shift)
  row.dirty = false
  if not value then
    row[1], row.burst, row.rate, row.finish, row.number = NONE, 0, 0, NONE, 0
    set(p, row)
    row.interval = p.interval
    return true
  end
  if #value ~= at + 47 then
    return false
  end
  row[1], row.interval, row.burst, row.rate, row.finish, row.number = words('<dddddd', value, at)
  row[1], row.finish = row[1] + shift, row.finish + shift
  if not (is_time(row[1]) and is_time(row.finish) and row.interval >= 1 and is_count(row.interval)
      and is_count(row.burst) and is_count(row.rate) and is_count(row.number)) then
    return nil
  end
  if row.finish <= 0 and (row.burst > 0 or row.rate > 0) then
    -- The share ended: what it held beyond the floor's burst is lost with it.
    local cut = row.burst
    row.burst, row.rate = 0, 0
    set(p, row)
    convert(row, p.interval, row.finish)
    row[1] = math.max(row[1] - cut * p.interval, math.min(row[1], row.finish))
  else
    -- Another floor. If it is lower, it may have been so since the row was written.
    set(p, row)
    convert(row, p.interval, p.interval > row.interval and shift or 0)
  end
  return true
end

local function save(p, row, before)
  local tat = row[1] > -FURTHEST and row[1] or 0
  local finish = row.finish > -FURTHEST and row.finish or 0
  return pack('<c0dddddd', before, tat + elapsed, row.interval, row.burst, row.rate,
    finish + elapsed, row.number)
end

return {
  letter = 'G', read = read, load = load, save = save, set = set, convert = convert,
  decide = bucket.decide, charge = bucket.charge, refund = bucket.refund,
}
