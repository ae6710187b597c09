"""The load generator: sends requests to a rate limit service and measures the answers.

`load.py` says which keys and how many requests, `requests.py` encodes them, `scheduler.py`
decides when each is sent, `http.py` and `grpc.py` are its connections. `counts.py` counts the
answers, `envelope.py` compares them with the limit, `report.py` prints the result. Only
``penstock bench`` uses it.
"""
