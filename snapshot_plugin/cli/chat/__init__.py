"""A small terminal client for any ACP agent, behind the same recording as an editor's: ``asnap chat``.

`connection` speaks ACP with ``asnap run``, a process of its own; `streaming` turns Markdown into terminal text
while it arrives; `display` prints what the agent does; `keys` reads keys while it works; `asking` is the prompt;
`conversation` is the loop; `unfinished` knows which chats were killed.
Nothing of a conversation is kept here: it is on the screen, in the spool and in the store.
"""
