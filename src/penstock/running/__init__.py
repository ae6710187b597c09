"""``penstock serve`` as processes: settings, supervisor, workers, sockets and logs.

With one worker, everything runs in one process::

    App ─┬─ AdminServer ── AdminApi ──┐
         ├─ Watcher (files, SIGHUP) ──┤
         │                            v
         └─ InProcessFleet ── InProcessWorker ── Worker ── store

With several, the supervisor starts the workers and keeps them alive::

    supervisor                                            worker, one process each
    ─────────────────────────────────────────             ────────────────────────────────
    App ─┬─ AdminServer ── AdminApi ──┐
         ├─ Watcher (files, SIGHUP) ──┤
         │                            v
         └─ SupervisedFleet ─┬─ WorkerProcess ── Channel ── WorkerHost ── Worker ─┐
                             └─ WorkerProcess ── Channel ── WorkerHost ── Worker ─┤
                                                                                  v
                                                       shared memory, or Redis: the store

A request comes to a listening socket, which the supervisor has opened (`listeners.py`), goes over
a wire (`wires/`) to the worker's `Service`, and back. It never passes through the supervisor.

A command of the admin API, a changed file or a SIGHUP goes to the fleet (`fleet.py`), and from
there to every worker. New rules are read once, by the supervisor, prepared in all workers, and
then put in force in all of them.

This room may import every room above it; only the command line imports it.
"""
