"""Small values that many processes share: put, get, delete, list and watch.

It carries rules, overrides and switches to every instance of a fleet. It may import the stores'
connections and what lies above this room in the list of rooms; it knows nothing about rules.

A write goes from `KeyValue.put` to the store and from there to every watch::

    KeyValue / AsyncKeyValue    the verbs, for threads and for tasks
      operations.py             checks, and the flow of each verb
        codec.py record.py      the value as it is stored, compressed where that pays
        memory.py file.py redis.py    a backend: compare, number, write, log; all of it atomic
    ---------------------------------- the log of the store, and a wake-up
      follower.py               reads the log: on a wake-up, and every 5 seconds
        mirror.py               what this process knows; local reads come from here
        cache.py                the same on disk, for a start while the store is away
          watching.py           a queue for each watch, with the last change of each key
"""

from penstock.kv.async_key_value import AsyncKeyValue
from penstock.kv.codec import LARGEST_VALUE
from penstock.kv.entry import LONGEST_KEY, Change, Entry, Status, at_least
from penstock.kv.key_value import KeyValue
from penstock.kv.watching import AsyncWatch, Watch

__all__ = [
    "LARGEST_VALUE",
    "LONGEST_KEY",
    "AsyncKeyValue",
    "AsyncWatch",
    "Change",
    "Entry",
    "KeyValue",
    "Status",
    "Watch",
    "at_least",
]
