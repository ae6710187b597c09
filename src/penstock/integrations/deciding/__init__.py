"""From a request to whether it may go ahead, and what it is answered. Knows no framework.

May import everything below `integrations`, and no framework, web or gRPC. Frameworks, the
proxy and the service's HTTP wire import from here; nothing here imports them.

The way of a request::

    framework        a `Request` (`request`), whose client `identity.Trust` finds out
      -> checkpoint  exempt? what does it cost?                Checkpoint[R].flow
      -> deciders    key and limits, or descriptors and rules  ByLimits, ByGate
      -> outcome     allowed or not, and how to take it back   Outcome
      -> http        status, headers and body                  Answer
      -> pending     one set of headers for all who decided    fields_of
      -> framework

`http_checkpoint` has the options of HTTP middleware; `views` what stands before one view;
`raised` the answers to our errors; `slots` the same for how many run at once. Flows yield
what has to be awaited, and `waiting` runs them by `penstock.flows`.
"""
