"""``penstock serve`` as processes: settings, supervisor, workers, sockets and logs.

With one worker, everything runs in one process::

    App ─┬─ AdminServer ── AdminApi ──┐
         ├─ Watcher, SIGHUP ──────────┤
         │                            v
         └─ Workers ── Worker ── store

With several, the supervisor starts the workers and keeps them alive::

    supervisor                                            worker, one process each
    ─────────────────────────────────────────             ────────────────────────────────
    App ─┬─ AdminServer ── AdminApi ──┐
         ├─ Watcher, SIGHUP ──────────┤
         │                            v
         └─ SupervisedWorkers ─┬─ WorkerProcess ── Channel ── WorkerHost ── Worker ─┐
                               └─ WorkerProcess ── Channel ── WorkerHost ── Worker ─┤
                                                                                    v
                                                         shared memory, or Redis: the store

A request arrives at a listening socket, which the supervisor has opened (`listeners.py`), goes
over a wire (`wires/`) to the worker's `Service`, and back. It never passes through the supervisor.

Files are watched by `rules.reading.watch.Watcher`, SIGHUP by `App`. With `--control`,
`control_plane.py` writes changes to the shared store, and applies those of other instances.

A command of the admin API goes to `Workers` (`workers.py`), and from there to every worker.
Changed files and SIGHUP start a reload (`reload.py`): new rules are read once, prepared in all
workers, and then put in force in all of them, or in none if a worker vetoes them.

This room may import every room above it; only the command line imports it.
"""
