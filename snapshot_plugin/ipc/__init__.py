"""Front ends in other languages: sessions over JSON lines (docs/reference/ipc.md).

================  =======================================================================
`serve`           reads a request from each line and writes its answer, in order
`requests`        the types of requests; unknown fields are rejected
`bridge`          carries a request out: one current session, saved before it is answered
`state`           what every answer says about the session
================  =======================================================================

Promises: what was answered is durable; a refused request changes nothing; every request gets one answer.
"""
