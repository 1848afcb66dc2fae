"""The host suite: every promise of an ACP host to its client, tested on a real process.

A *host* sits between an ACP client and an ACP agent and records what passes: the proxy, an SDK client, an SDK
agent, a link of a proxy chain. A test class defines the command that starts its host and inherits the groups of
cases that apply (`snapshot_plugin.testing.hosts` is the shorter suite for hosts of others):

    class TestMyHost(Answers, Loading, Recording):
        def command(self, store, agent, *, session=None, patience=None):
            return ["my-host", "--store", str(store), "--", *agent]

The suite starts that command, speaks ACP with it over stdin and stdout, and kills it in some cases. The agent is
the scripted one (`tests.acp_agent`); flags select its behaviour.

==============  ================================================================================================
`Answers`       each request gets exactly one answer; hanging up ends the host
`Login`         -32000 reaches the client, and the session works after the login
`Loading`       session/load and session/resume, of stored and of open sessions
`AgentMemory`   for agents that remember sessions: when their memory is used, and what the model is told
`Notes`         what the model is told about a session that it does not remember
`Recording`     what the record holds after everything was killed, and under which names
`Trouble`       concurrent writers, and failing disks
`Restarting`    for hosts that start the agent: the agent dies, and the client keeps its connection
`Adopting`      for hosts that can be told to continue a stored session when the client opens its first
==============  ================================================================================================

Our own hosts inherit all groups, with these exceptions. A chain link does not restart: its agent is a process of
the conductor. An SDK client restarts the agent only if it knows the agent's command; otherwise the agent's death
ends the connection. An SDK agent is the agent itself, so nothing can restart it, and its own code only creates
sessions (no `AgentMemory`). An orchestrator with `AcpProvider` answers its own clients and logs in by itself (no
`Answers`, no `Login`). A program with an SDK host names the session that it continues, so it does not inherit
`Adopting`.
"""

from tests.hosts.answers import Answers
from tests.hosts.loading import Adopting, Loading
from tests.hosts.login import Login
from tests.hosts.memory import AgentMemory, Notes
from tests.hosts.recording import Recording
from tests.hosts.restarting import Restarting
from tests.hosts.stage import HostStage
from tests.hosts.trouble import Trouble

__all__ = [
    "Adopting",
    "AgentMemory",
    "Answers",
    "HostStage",
    "Loading",
    "Login",
    "Notes",
    "Recording",
    "Restarting",
    "Trouble",
]
