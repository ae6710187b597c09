"""What an operator changes, as entries of a key-value store: rules, overrides and switches.

It may import `kv/` and `rules/`; it starts nothing and knows no service. Every operation is a flow
whose steps are calls of a `KeyValue`, so that threads and tasks share it::

    rules/current               which set of rules is in force
    rules/set/00000003          every set that was pushed: its files, by digest
    rules/file/<digest>/0       the content of a file, compressed, in pieces
    override/user=42            another limit for a pair
    switch/all  switch/rule/... a mode for all rules, or for one rule or limit
    allow/ip=192.0.2.0/24       additions to the lists; deny/... as well

`rule_sets.py` has the rules, `switch_entries.py` all the others, as commands of the admin API.
"""
