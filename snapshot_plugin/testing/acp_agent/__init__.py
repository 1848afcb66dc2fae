"""A scripted ACP agent: no model, no keys, no network. The prompt says what it does in a turn.

Run it with ``python -m snapshot_plugin.testing.acp_agent [flags]``; it speaks ACP v1 on stdin and stdout, and ends
when its stdin does. Each line of the last text block of a prompt is one command:

=======================  ====================================================================================
``say <words>``          says the words
``stream <n> [ms]``      sends the n chunks ``part-000.`` ``part-001.`` …, *ms* apart
``think [words]``        thinks the words
``plan``                 shows a plan of two steps
``tool``                 runs a tool: pending, in_progress, completed, with input, output and a diff
``ask``                  the same, if the client permits it
``slow-tool <seconds>``  a tool that takes its time
``terminal [command]``   runs a command in a terminal of the client's and shows it in a tool call
``call <method> [json]`` asks the client for anything and says the answer as JSON
``update <json>``        sends any ``session/update``
``remember``             says how many earlier turns it knows of, and the last prompt among them
``echo-blocks``          says, as JSON, the blocks of this prompt exactly as they reached it
``crash <n>``            streams n chunks and kills itself
``notice <words>``       says the words and does not keep them
``stop <reason>``        ends the turn for this reason
``fail [words]``         answers the prompt with an error
=======================  ====================================================================================

Anything else is answered with ``You said: …``. A prompt that begins with ``/`` is answered and not kept;
``/compact`` also replaces what was said before it with a summary. A block that begins with ``<`` is a note to the
model and not a command. Sessions live in memory, or with ``--state FILE`` also in a JSON file. There, as with real
agents, a turn's prompt and tool calls appear at once, its words when it is finished. Settings are not kept.
"""
