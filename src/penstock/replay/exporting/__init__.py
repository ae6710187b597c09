"""Exporting: the limits of rules as configuration of a proxy or a firewall.

::

    RuleSet ── items.py ── Item ── nginx.py    ── Piece ── export.py ── Export
               (refuses)           envoy.py     (refuses)              text, and the
                                   haproxy.py                          rules it amounts to
                                   nftables.py

An `Item` is one limit with the requests that it is for. A writer makes a `Piece` of it: lines of
configuration, how exact they are, and the limit that Penstock would need to decide the same.
Whatever cannot be said in a target is refused with its place in the file. `escaping.py` has the
only functions through which texts of rules reach a configuration.
"""
