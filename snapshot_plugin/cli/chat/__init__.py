"""``asnap chat``: a small terminal client for any ACP agent, recorded in the same way as an editor.

`connection` speaks ACP with ``asnap run``, a separate process; `streaming` turns Markdown into terminal text while
it arrives; `display` prints what the agent does; `keys` reads keys while the agent works; `question` asks for an
answer; `asking` is the prompt; `conversation` is the loop; `unfinished` tracks which chats were killed.
The client stores no part of a conversation: that is in the spool and in the store.
"""
