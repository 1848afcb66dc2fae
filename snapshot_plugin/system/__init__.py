"""What the operating system does for this package, in one place, for POSIX.

===========  ==========================================================================================
`files`      durable file operations, kernel locks on files, whose a file is
`forks`      what a forked child does first, and locks that it always finds free
`processes`  the agent's process: its group, its end, its signals
`sockets`    control sockets: who is at the other end, and whether anybody is
`terminal`   a terminal that does not echo
===========  ==========================================================================================

All other modules can be imported without `fcntl`, `termios` and `os.fork`, so on Windows too. What needs them
raises `Unsupported` when it is used. A port to another system is a second implementation of these modules.
"""
