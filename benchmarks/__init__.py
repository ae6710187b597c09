"""Penstock side by side with its peers: ``python -m benchmarks`` from the repository's root.

    python -m benchmarks               everything, some minutes
    python -m benchmarks speed         one topic: speed, memory, pauses, threads,
                                       processes, redis, batches, rules, web,
                                       service, accuracy, cells, edge or adaptive
    python -m benchmarks --quick       everything, shorter and rougher
    python -m benchmarks edge --out p.png

Tables go to the terminal, and with the pictures to ``benchmarks/out/``. Trust
ratios more than absolutes: all of them are measured in one run, in turns, on the
same machine.
"""
