"""Sessions in files: bundles, pages for reading, and the session files of other tools.

===========  =====================================================================================
`reading`    what a file is, and the sessions in it
`bundle`     one file with whole sessions (docs/reference/bundle.md); `sealing`: with a passphrase
`carrying`   sessions from a store to a file and back, with other paths, another id or no secrets
`rendering`  a session as Markdown, HTML or JSON
`foreign`    readers for the files of other tools
===========  =====================================================================================

Promises: an import writes everything or nothing, and never overwrites a session; a bundle that is imported and
exported again has the same content; sizes are bounded; text of a session cannot run, hide or fake anything.
"""
