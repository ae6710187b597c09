"""Whether a request may go ahead, and the response if not. Knows no framework.

May import everything below `integrations`, and no framework, web or gRPC. Frameworks, the
proxy and the service's HTTP wire import from here.

The way of a request::

    framework            makes a `Request`; `identity.Trust` finds its client
      -> checkpoint      exempt? cost?                            Checkpoint.flow
      -> deciders        key and limits, or descriptors and rules ByLimits, ByGate
         key_limits      several keys, each with its limits       ByKeys
      -> outcome         allowed or not, and how to give it back  Outcome
      -> refusals        fallback, queue, or 429                  Refusals
      -> responses       status, headers and body                 Answer
      -> applied_limits  headers for all limits, and settling     fields_of, settle
      -> framework

`http_checkpoint` has the options of HTTP middleware, `views` those of limits before single
views, and `environment` options from variables. `marked_views` are those that a site's limits
pass over. `proxy_notice` and `key_functions` log once, by `notices`, what is probably a mistake.
`error_responses` answers our errors. `slots` and `breaker_call` are for the concurrency and the
breaker middleware. Flows yield what has to be awaited, and `waiting` runs them.
"""
