"""All metrics, in one table.

Exposition, sums over processes, the reference page, the dashboard and the alert rules are
checked against it. A family says how the values of several processes are merged::

    SUM      counted by each process: the sum, including processes that ended
    MOST     the same event seen by each process: the largest
    LEAST    one bad process is enough: the smallest
    NEWEST   the same in all processes: the latest
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
SUM, MOST, LEAST, NEWEST = "sum", "most", "least", "newest"

# Upper bounds of the latency buckets, in seconds. A decision in memory takes microseconds, one
# over the network about a millisecond, a slow one as long as its deadline.
BOUNDS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
    0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip

# Outcomes of a decision. They exclude each other, so their sum is the number of decisions.
ALLOWED = "allowed"
NEAR_LIMIT = "near_limit"
OVERRUN = "overrun"
REFUSED = "refused"
SHADOWED = "shadowed"
UNCOUNTED = "uncounted"
OUTCOMES = (ALLOWED, NEAR_LIMIT, OVERRUN, REFUSED, SHADOWED, UNCOUNTED)

# The label for label sets above the bound.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its labels; ``bounded`` if requests could create new label sets."""

    name: str
    kind: str
    merge: str
    labels: tuple[str, ...]
    help: str
    bounded: bool = False


_RULE = ("domain", "rule")

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("penstock_requests_total", COUNTER, SUM, ("domain", "outcome"),
               "Requests, allowed or refused as a whole.", bounded=True),
        Family("penstock_decisions_total", COUNTER, SUM, (*_RULE, "outcome"),
               "Decisions of each rule: allowed, near_limit (allowed, above 80 % used), "
               "overrun (allowed above a soft limit), refused, shadowed (over the limit, but "
               "allowed) or uncounted.",
               bounded=True),
        Family("penstock_detailed_decisions_total", COUNTER, SUM, (*_RULE, "values", "outcome"),
               "The same by values of the descriptor, for rules with detailed_metric or "
               "value_to_metric.", bounded=True),
        Family("penstock_without_rule_total", COUNTER, SUM, ("domain", "reason"),
               "Descriptors that no rule matched, by reason.", bounded=True),
        Family("penstock_degraded_decisions_total", COUNTER, SUM, _RULE,
               "Decisions made by the failure policy, without the shared store.", bounded=True),
        Family("penstock_decision_seconds", HISTOGRAM, SUM, ("domain",),
               "Time from request to decision.", bounded=True),
        Family("penstock_folded_total", COUNTER, SUM, ("family",),
               "Values counted as other because a family was full."),
        Family("penstock_limit_units", GAUGE, NEWEST, (*_RULE, "limit"),
               "Configured: units per period."),
        Family("penstock_limit_period_seconds", GAUGE, NEWEST, (*_RULE, "limit"),
               "Configured: the period."),
        Family("penstock_limit_burst_units", GAUGE, NEWEST, (*_RULE, "limit"),
               "Configured: units that may be used at once."),
        Family("penstock_limits_not_shown", GAUGE, NEWEST, (),
               "Configured limits that are left out because there are too many."),
        Family("penstock_slots_in_use", GAUGE, SUM, ("rule",),
               "Slots of a rule's concurrency that are held now.", bounded=True),
        Family("penstock_slots_taken_total", COUNTER, SUM, ("rule",),
               "Slots of a rule's concurrency that were taken.", bounded=True),
        Family("penstock_slots_refused_total", COUNTER, SUM, ("rule",),
               "Requests that got no slot of a rule's concurrency.", bounded=True),
        Family("penstock_rules", GAUGE, NEWEST, (), "Rules in force."),
        Family("penstock_rules_without_dimension", GAUGE, MOST, _RULE,
               "1 for each rule that does not apply to requests of /v1/auth, because nobody says "
               "what one of its keys is."),
        Family("penstock_rules_loaded_total", COUNTER, MOST, (),
               "Number of times that rules were loaded."),
        Family("penstock_rules_rejected_total", COUNTER, MOST, (),
               "Number of times that rules were invalid and the old ones stayed in force."),
        Family("penstock_rules_loaded_timestamp_seconds", GAUGE, LEAST, (),
               "When the rules in force were loaded."),
        Family("penstock_rules_ok", GAUGE, LEAST, (),
               "1 if the rules that were read last are in force, 0 if they were rejected."),
        Family("penstock_store_up", GAUGE, LEAST, ("store",),
               "1 if a store is in use, 0 while its circuit breaker is open."),
        Family("penstock_store_downs_total", COUNTER, SUM, ("store",),
               "Number of times that a store's circuit breaker opened."),
        Family("penstock_store_degraded_total", COUNTER, SUM, ("store", "verb", "policy"),
               "Operations that a failure policy answered because the store was unavailable."),
        Family("penstock_store_max_keys", GAUGE, MOST, ("store",),
               "Capacity of a store in memory, in keys."),
        Family("penstock_store_evictions_total", COUNTER, MOST, ("store",),
               "Keys evicted with live state because the store was full."),
        Family("penstock_store_repairs_total", COUNTER, MOST, ("store",),
               "Damaged parts of a shared file that were reset."),
        Family("penstock_store_damaged_total", COUNTER, SUM, ("store",),
               "Keys in Redis that held invalid state and were reset."),
        Family("penstock_leases", GAUGE, SUM, ("store",),
               "Keys that are leased now, in each process that leases them."),
        Family("penstock_lease_units", GAUGE, SUM, ("store",),
               "Leased units that are in hand now."),
        Family("penstock_lease_decisions_total", COUNTER, SUM, ("store", "decided"),
               "Decisions on limits that can be leased: here, from a lease, or directly, in "
               "Redis."),
        Family("penstock_lease_calls_total", COUNTER, SUM, ("store",),
               "Calls to Redis that lease, renew and return, each for any number of keys."),
        Family("penstock_lease_calls_saved", GAUGE, SUM, ("store",),
               "Calls to Redis that were not needed since the start: decisions here, less the "
               "calls for leases."),
        Family("penstock_lease_failures_total", COUNTER, SUM, ("store",),
               "Such calls that were not answered, or not confirmed by enough replicas."),
        Family("penstock_lease_granted_units_total", COUNTER, SUM, ("store",),
               "Units that were leased."),
        Family("penstock_lease_stretch", GAUGE, MOST, ("store",),
               "Leases are so many times as long as usual, because a process has many."),
        Family("penstock_lease_returned_units_total", COUNTER, SUM, ("store",),
               "Leased units that were returned unspent."),
        Family("penstock_lease_lapsed_units_total", COUNTER, SUM, ("store",),
               "Leased units that were not spent in time, and are lost."),
        Family("penstock_lease_unused_ratio", GAUGE, MOST, ("store",),
               "The part of the leased units, since the start, that lapsed: 0.01 is 1 %."),
        Family("penstock_region_floor", GAUGE, MOST, ("region",),
               "The part of every limit that is reserved for this region, from 0 to 1."),
        Family("penstock_region_cut_off", GAUGE, MOST, ("region",),
               "1 while the home was not heard for a third of a lease."),
        Family("penstock_region_share_seconds", GAUGE, MOST, ("region",),
               "Seconds until the shares of this region end, if the home is not heard."),
        Family("penstock_region_agents", GAUGE, SUM, ("region",),
               "Processes that speak for their region: 1 in each region."),
        Family("penstock_region_keys", GAUGE, SUM, ("region",),
               "Keys for which the agent of this region has a share."),
        Family("penstock_region_rounds_total", COUNTER, SUM, ("region",),
               "Times that a process asked its region, or the home, for news."),
        Family("penstock_region_failures_total", COUNTER, SUM, ("region",),
               "Such rounds that failed."),
        Family("penstock_rlqs_streams", GAUGE, SUM, (),
               "Open streams of Envoys that get quotas."),
        Family("penstock_rlqs_buckets", GAUGE, SUM, ("assignment",),
               "Buckets of these streams, by what they were assigned last: token_bucket, allow, "
               "deny or none."),
        Family("penstock_rlqs_reports_total", COUNTER, SUM, (), "Usage reports of Envoys."),
        Family("penstock_rlqs_assignments_total", COUNTER, SUM, (),
               "Assignments that were sent, each for one bucket."),
        Family("penstock_rlqs_pushes_total", COUNTER, SUM, (),
               "Those of them that came between reports, because something had become free."),
        Family("penstock_rlqs_unanswered_total", COUNTER, SUM, ("reason",),
               "Reports of buckets that got no assignment: bank (it could not be asked, or has "
               "just started), undivided (the limit cannot be divided) or full (too many "
               "buckets)."),
        Family("penstock_rlqs_denials_total", COUNTER, SUM, (),
               "Assignments that deny everything because nothing was free."),
        Family("penstock_rlqs_abandoned_total", COUNTER, SUM, (),
               "Buckets that were given up because nobody had used them for minutes."),
        Family("penstock_rlqs_bank_failures_total", COUNTER, SUM, (),
               "Times that the bank could not be asked."),
        Family("penstock_rlqs_stalled_streams_total", COUNTER, SUM, (),
               "Streams that were closed because assignments did not arrive."),
        Family("penstock_rlqs_degraded", GAUGE, MOST, (),
               "1 while the bank cannot be asked: Envoys use what they have until it expires."),
        Family("penstock_quota_spent_units_total", COUNTER, SUM, ("meter",),
               "Units that requests took from quotas of the ledger."),
        Family("penstock_quota_returned_units_total", COUNTER, SUM, ("meter",),
               "Units of quotas that were given back."),
        Family("penstock_quota_stocks", GAUGE, SUM, (),
               "Stocks of units that processes spend from, or have to settle."),
        Family("penstock_quota_unsettled_units", GAUGE, SUM, (),
               "Units that were spent and that the ledger could not be told of."),
        Family("penstock_quota_settlements_total", COUNTER, SUM, ("outcome",),
               "Reports of what was spent: done or failed; those that fail are repeated."),
        Family("penstock_quota_near_empty_total", COUNTER, SUM, (),
               "Number of times that the balance of an account became nearly empty."),
        Family("penstock_quota_degraded", GAUGE, MOST, (),
               "1 while the ledger does not answer: units that are in the store can be spent."),
        Family("penstock_circuit_state", GAUGE, MOST, ("circuit",),
               "State of a circuit breaker: 0 closed, 1 half-open, 2 open."),
        Family("penstock_refusals_anomalous", GAUGE, MOST, ("rule",),
               "1 while refusals are far above their recent history; rule all is all rules."),
        Family("penstock_anomalies_total", COUNTER, SUM, ("rule",),
               "Number of times that refusals jumped."),
        Family("penstock_webhooks_total", COUNTER, SUM, ("outcome",),
               "Messages to the webhook: sent, failed or dropped."),
        Family("penstock_info", GAUGE, MOST, ("version", "core"), "Always 1."),
        Family("penstock_workers", GAUGE, SUM, (), "Running worker processes."),
        Family("penstock_process_start_time_seconds", GAUGE, NEWEST, ("worker",),
               "Start time of a process."),
        Family("penstock_process_cpu_seconds_total", COUNTER, SUM, ("worker",),
               "Processor time of a process, including earlier processes of the same worker."),
        Family("penstock_process_resident_memory_bytes", GAUGE, NEWEST, ("worker",),
               "Memory of a process."),
        Family("penstock_process_open_fds", GAUGE, NEWEST, ("worker",),
               "Open file descriptors of a process."),
    )
}  # fmt: skip
