"""The manager: saves live sessions automatically and restores them. Start with `manager`.

=======================  ==========================================================================================
`manager`                `SnapshotManager`; `managed`: a session whose object is asked for its snapshot;
                         `sessions`: all of them, also those that a host records, and when they are saved
`resume`                 `create_or_resume_session`, `stop_session`; `ports`: what sessions and providers implement
`persistent`             `persistent_session`: one agent; `context`, `working_memory`: its parts
`config`                 `SnapshotConfig`; `config_layers`, `config_values`: its sources; `places`, `opening`
`events`, `telemetry`    what happened, for subscribers and metrics
`predeploy`, `control`   saving all sessions, also those of other processes, over a private socket
`signals`                saving on SIGTERM and SIGINT
`retention`              applying the settings: how many snapshots and sessions are kept
`labels`, `branches`     names, tags, pins, notes; forks and merges
`forgetting`             moving sessions and snapshots to the trash
=======================  ==========================================================================================

Promises: a failed save never raises into the agent, and is retried; concurrent saves are coalesced; leaving the
manager, an error, a cancellation and SIGTERM save every live session within a bounded time.
"""
