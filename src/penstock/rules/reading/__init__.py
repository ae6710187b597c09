"""Reading: from text to a `RuleSet`, or to a list of all problems.

::

    files ── yaml_tree ─┐
                        tree ── parse ── steps, limits, lists, variants ── levels ── RuleSet
    dict ─── dict_tree ─┘

`keywords.py` is the table of every key that a file may have; `schema.json` is made from it.
`loading.py` is what gates use, `watch.py` notices when files change. May import the shared model,
knows no request and no store.
"""
