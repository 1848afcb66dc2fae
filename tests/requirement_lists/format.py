"""The on-disk format: what `docs/reference/format.md` promises to every reader and writer."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section

__all__ = ["FORMAT"]

_PAGE = "docs/reference/format.md: "

_DIRECTORY = section(
    _PAGE + "1. The directory",
    done("FORMAT-PAGE-READER", "The page is enough for a reader in under 60 lines of standard library."),
    done("FORMAT-DIR-LAYOUT", "A store has STORE.json, sessions, trash, and keys if it is encrypted."),
    done("FORMAT-DIR-MODES", "Directories have mode 0700, files 0600."),
    done("FORMAT-DIR-TMP", "Names that end in .tmp mean nothing."),
    done("FORMAT-STORE-FILE", "STORE.json says format, id, time of creation, and whether it is encrypted."),
    done("FORMAT-STORE-UNKNOWN", "A store of an unknown format is refused."),
    done("FORMAT-NAME-ENCODING", "A directory name is the percent-encoded session id; upper case is encoded too."),
    done("FORMAT-NAME-CASE", "Ids that differ only in case have names that differ in more."),
    done("FORMAT-NAME-DOT", "A leading dot is encoded."),
    done("FORMAT-NAME-EMPTY", "An empty id is refused."),
    done("FORMAT-NAME-DOTS", "The ids . and .. are refused."),
    done("FORMAT-NAME-CONTROL", "An id with a control character is refused."),
    done(
        "FORMAT-NAME-LONG",
        "A name over 200 bytes is shortened by a digest; frames hold the whole id.",
    ),
    done("FORMAT-SEGMENT-NAME", "A segment is named after its first sequence number, in at least ten digits."),
    done("FORMAT-SEGMENT-RANGE", "A rewritten range replaces the files of lower generation that begin in it."),
)

_FRAME = section(
    _PAGE + "2. A frame",
    done("FORMAT-FRAME-GZIP", "One frame is one gzip member; gzip -t passes on every store."),
    done("FORMAT-FRAME-ZCAT", "zcat of a plain store's segments gives JSON lines."),
    done("FORMAT-FRAME-CONSTANTS", "The first ten bytes are fixed; others are refused."),
    done("FORMAT-FRAME-EXTRA", "The header rides in the FEXTRA field under SN, with exact lengths."),
    done("FORMAT-FRAME-LENGTH", "The frame length covers the whole member, so segments are sliced by it."),
    done("FORMAT-FRAME-CRC", "CRC-32 and length of the payload are checked."),
    done("FORMAT-FRAME-PACK", "Rewritten snapshots may share a frame; each is found, with its own header, inside."),
    done("FORMAT-HEADER-JSON", "The header is JSON with sorted keys, no spaces, ASCII."),
    done("FORMAT-HEADER-V", "v is the schema version of the payload."),
    done("FORMAT-HEADER-ID", "id is the snapshot's own and stays when the frame is rewritten."),
    done("FORMAT-HEADER-SID", "sid must be the session's, so a frame in another session's place is refused."),
    done("FORMAT-HEADER-LO-HI", "lo follows the hi before; lo < hi where snapshots were forgotten."),
    done("FORMAT-HEADER-SPLICE", "at, del, ins say how the messages before become these."),
    done("FORMAT-HEADER-FULL", "A full frame stands alone; the first one is full, and so is one of another v."),
    done("FORMAT-HEADER-PREV", "prev is the root of the snapshot before."),
    done("FORMAT-HEADER-SUM", "sum covers every byte of a plain frame."),
    done("FORMAT-HEADER-TIME", "t is when it was saved, in UTC."),
    done("FORMAT-HEADER-WRITER", "w is the writer, one for each time a store is opened."),
    done("FORMAT-HEADER-TRIGGER", "trigger is why it was taken."),
    done("FORMAT-HEADER-TAGS", "tags are those of the snapshot."),
    done("FORMAT-ORDER-HI", "Order is given by hi alone; clocks may run backwards."),
    done("FORMAT-PAYLOAD-LINES", "The payload is meta, changed sections, inserted messages, one JSON per line."),
    done("FORMAT-PAYLOAD-META", "Each frame repeats what lists show."),
    done("FORMAT-PAYLOAD-GROUPS", "Entries of plugins, memory and metadata are sections of their own."),
    done("FORMAT-PAYLOAD-REMOVED", "A section without value was removed."),
    done("FORMAT-PAYLOAD-SURROGATE", "A lone surrogate survives, as an ASCII line."),
)

_ENCRYPTED = section(
    _PAGE + "3. Encrypted frames",
    done(
        "FORMAT-SEAL-STORED", "An encrypted frame holds its ciphertext in stored blocks, so gzip -t needs no key."
    ),
    done("FORMAT-SEAL-AAD", "Every byte before the ciphertext is authenticated."),
    done("FORMAT-SEAL-MOVED", "A frame that was moved, renamed or edited does not open."),
    done("FORMAT-SEAL-EXACT", "A frame whose bytes differ from re-assembling its ciphertext is refused."),
    done("FORMAT-SEAL-PLAIN", "A plain frame in an encrypted store is refused."),
    done("FORMAT-SEAL-FRAME-KEY", "The frame key is derived from data key, store id and session id as written."),
    done(
        "FORMAT-SEAL-DIGEST-KEY",
        "The digest key is derived from digest secret, store id and session id as written.",
    ),
    done("FORMAT-SEAL-HIDDEN", "Nothing of the content is in the clear."),
    done(
        "FORMAT-KEYS-SUM", "A wrong sum in a key file is corruption; a right one over wrong content is tampering."
    ),
    done("FORMAT-KEYS-KEYSET", "The keyset is sealed under the master key and bound to its store."),
    done("FORMAT-KEYS-PRIMARY", "New frames use the primary key; the others read older frames."),
    done("FORMAT-KEYS-DIGEST", "The digest secret never changes, so roots survive a rotation."),
    done("FORMAT-KEYS-SLOT", "A slot wraps the master key and is bound to store, slot id and kind."),
    done("FORMAT-KEYS-PLACE", "A slot file moved or renamed is refused."),
    done("FORMAT-KEYS-KIND", "Any source may open any slot."),
    done("FORMAT-KEYS-HKDF", "A generated key is stretched with HKDF as written."),
    done("FORMAT-KEYS-SCRYPT", "Any other secret is stretched with scrypt as written, text in NFC."),
    done("FORMAT-KEYS-HOSTILE", "Hostile scrypt parameters are refused before anything is derived."),
    done("FORMAT-KEYS-EVERY", "Every slot that can be read is tried before one that cannot is reported."),
    done("FORMAT-KEYS-ONE-SLOT", "Adding, removing or changing a passphrase writes one slot and no frame."),
    done("FORMAT-KEYS-ROTATE", "Rotating the data key writes the keyset and no frame."),
    done("FORMAT-KEYS-WHOLE", "The keys directory appears whole or not at all."),
    done("FORMAT-KEYS-DURABLE", "A new slot is durable before the one it replaces goes."),
    done("FORMAT-KEYS-LOCK", "Two never change keys at once."),
)

_DIGESTS = section(
    _PAGE + "4. Digests",
    done("FORMAT-ROOT-FORMULA", "The root is the formula over message and section lines as written."),
    done("FORMAT-ROOT-CONTENT", "Only content counts: not time, header or meta."),
    done("FORMAT-ROOT-REWRITE", "Forgetting, merging, recompressing and re-keying keep every root."),
    done("FORMAT-ROOT-CHAIN", "prev links roots into a chain, and a break in it is damage."),
)

_READING = section(
    _PAGE + "5. Reading",
    done("FORMAT-READ-UNFINISHED", "A proper beginning of a frame at the end of a segment is ignored."),
    done("FORMAT-READ-ZEROS", "Zeros at the end of a segment are ignored."),
    done("FORMAT-READ-DAMAGE", "Anything else that is wrong is damage and is said."),
    done("FORMAT-READ-RESYNC", "Behind damage the next frame is found again."),
    done("FORMAT-READ-BIT", "Every single flipped bit is noticed."),
    done("FORMAT-READ-TRUNCATION", "At every truncation length the newest whole snapshot loads."),
    done("FORMAT-READ-FALLBACK", "The newest snapshot that can be read is the one to fall back to."),
    done("FORMAT-READ-BOMB", "A payload that inflates beyond its declared length is refused."),
    done("FORMAT-READ-LIMIT", "Frames and payloads over the limit are refused before anything is allocated."),
)

_WRITING = section(
    _PAGE + "6. Writing",
    done("FORMAT-WRITE-LOCK", "The lock that counts is that of the directory that stands there now."),
    done("FORMAT-WRITE-HEAD", "A writer whose head is not the one on disk gets a conflict."),
    done("FORMAT-WRITE-ONE-SYNC", "A frame is appended and synced once before it is acknowledged."),
    done(
        "FORMAT-WRITE-NEW-SEGMENT", "A new segment is created exclusively, written, synced, its directory synced."
    ),
    done("FORMAT-WRITE-DOUBT", "After any error nothing is appended behind a doubtful tail."),
    done("FORMAT-WRITE-REWRITE", "A rewrite is synced, read back and renamed before old files go."),
)

_THREATS = section(
    _PAGE + "7. What the format cannot see",
    done("FORMAT-THREAT-EDIT", "Edited, swapped, moved or renamed frames are refused in an encrypted store."),
    done("FORMAT-THREAT-PLAIN", "Plain frames put into an encrypted store are refused."),
    done("FORMAT-THREAT-ROLLBACK", "A rollback is seen by who pinned sequence number and root."),
)

FORMAT = (*_DIRECTORY, *_FRAME, *_ENCRYPTED, *_DIGESTS, *_READING, *_WRITING, *_THREATS)
