"""The admin API, on its own port: access, endpoints, commands and the audit log.

A request comes from an `HttpServer` to `AdminApi` (`api.py`): `access.py` admits or denies it,
`reading.py` checks its parameters, `handlers.py` answers it. Changes become commands
(`commands.py`), which `control.py` applies in every process, and are recorded by `audit.py`.
May import `service/`, `wires/http` and what lies above them.
"""
