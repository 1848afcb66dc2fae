"""Encode snapshots as frames, and decode them (docs/reference/format.md).

==========  ======================================================================================
`document`  a snapshot as lines, and the difference between two snapshots; digests
`frame`     one snapshot as a gzip member with a header; `pack`: several in one frame
`scan` splitting a segment into frames; unfinished saves are not damage
`compress`  DEFLATE by the fastest library that is installed
`encrypt`   sealing frames and digests of one session
`keys`      the keyset, and the slots that wrap its master key; `sources`: where secrets come from
==========  ======================================================================================

Promises: every stored bit is covered by a checksum or an AEAD tag; sizes are checked before memory is allocated;
the same content has the same digest, whatever the compression.
"""
