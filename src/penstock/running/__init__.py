"""``penstock serve`` as processes: settings, supervisor, workers, sockets and logs.

`app.py` starts everything and ends it. With one worker it runs in the same process, with several
`supervisor.py` starts them and talks to each over `channel.py`. This room puts together what the
service, the wires and the admin API provide.
"""
