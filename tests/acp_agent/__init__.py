"""A scripted ACP agent: no model, no keys, no network. The prompt scripts each turn.

Run it with ``python -m tests.acp_agent [flags]``; it speaks ACP v1 on stdin and stdout, and exits
when stdin closes. Each line of the last text block of a prompt is one command:

=======================  ====================================================================================
``say <words>``          says the words
``long <n>``             says a word of n letters, in one message
``long-answer <n>``      answers the prompt with n letters beside its stop reason
``long-request <n>``     asks the client to write a file of n letters, and says the answer
``stream <n> [ms]``      sends the n chunks ``part-000.`` ``part-001.`` …, *ms* apart
``think [words]``        thinks the words
``plan``                 shows a plan of two steps
``tool``                 runs a tool: pending, in_progress, completed, with input, output and a diff
``ask``                  the same, if the client permits it
``slow-tool <seconds>``  a tool that takes its time
``terminal [command]``   runs a command in a terminal of the client's and shows it in a tool call
``call <method> [json]`` asks the client for anything and says the answer as JSON
``update <json>``        sends any ``session/update``
``remember``             says how many earlier turns it remembers, and the last prompt among them
``echo-blocks``          says, as JSON, the blocks of this prompt exactly as they reached it
``crash <n>``            streams n chunks and kills itself
``leave-child``          starts a child process that keeps the agent's output open
``notice <words>``       says the words without storing them
``stop <reason>`` ends the turn with this stop reason
``fail [words]``         answers the prompt with an error
=======================  ====================================================================================

Anything else is answered with ``You said: …``. A prompt that begins with ``/`` is answered but not stored;
``/compact`` also replaces the conversation so far with a summary. A block that begins with ``<`` is a note to the
model and not a command. Sessions live in memory, or with ``--state FILE`` also in a JSON file. As with real agents,
the file gets a turn's prompt and tool calls immediately, and its text when the turn is finished. Settings are not
stored.
"""
