"""The Agent Client Protocol (ACP): record sessions and restore them in any agent.

A core without I/O makes every decision; thin hosts carry them out.

===============  ================================================================================
`core`           `Core`: messages in, actions out; each request gets exactly one answer
`actions`        what the core asks of its host; `Jobs`: work in several steps
`methods`        new, load, resume, fork, close, delete; `listing`: list
`restore`        the strategies from native load to context, and their grades
`supervise`      what happens when the agent's process ends
`events`         which message becomes which event of the record
`reducer`        events to snapshot, with `state` and `draft`
`replay`         snapshot to updates; the agent's own replay and our notes in it, which are withheld
`compare`        checks whether an agent still has the session; `notes`: what the model is told
`sessions`       `SessionState`: what a connection knows of one session, with its ids on both sides
`messages`       JSON-RPC messages; `endpoint`: one end of a connection, for programs that are no host
`hosts`          the proxy, SDK clients, SDK agents, links of a proxy chain
===============  ================================================================================
"""
