"""The Agent Client Protocol (ACP): recording sessions, and bringing them back in any agent.

A core without I/O decides everything; thin hosts carry its decisions out.

===============  ================================================================================
`core`           `Core`: messages in, actions out; each request gets exactly one answer
`actions`        what the core asks of its host; `Jobs`: work in several steps
`methods`        new, load, resume, fork, close, delete, list
`restore`        the ladder from native load to context, and its grades
`supervise`      what happens when the agent's process ends
`reducer`        events to snapshot, with `state`, `transcript`
`replay`         snapshot to updates
`compare`        whether an agent remembers; `notes`: what the model is told
`messages`       JSON-RPC lines, and session ids on both sides
`offers`         capabilities and lists
`hosts`          the proxy, SDK clients, SDK agents, links of a proxy chain
===============  ================================================================================
"""
