"""The names under which agents and people write the fields of errors, endpoints, timings and noise rules.

All in lower case, without separators: ``avg_ms``, ``avgMs`` and ``Avg-MS`` are one.
"""

from __future__ import annotations

from typing import Final

from snapshot_plugin.memory.names import API_SCHEMA, ERRORS, NOISE, PERFORMANCE


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


METHODS: Final = frozenset(_words("GET POST PUT PATCH DELETE HEAD OPTIONS TRACE CONNECT"))
GENERIC: Final = frozenset(
    _words(
        "all api apischema config current data default endpoint endpoints entries error errors history items latest"
        " list log main noise noiseconfig performance routes rules schema timings"
    )
)
"""Keys that say where an entry is kept, and are not its name."""

WRAPPERS: Final = {
    ERRORS: _words("entries errors error items history unresolved resolved resolvedrecently"),
    API_SCHEMA: _words("endpoints paths routes apis entries items"),
    PERFORMANCE: _words("endpoints timings latency latencies routes entries items metrics"),
    NOISE: _words("rules patterns ignore noise filters entries items add"),
}
"""Fields that hold a list or a map of entries."""

FINGERPRINT: Final = _words("fingerprint errorid signature hash id")
COUNT: Final = _words("occurrences count times total hits seen n frequency")
MESSAGE: Final = _words("message msg error text description detail details exception summary")
TYPE: Final = _words("type errortype name class kind code title")
WHERE: Final = _words("file filename source location path url endpoint module component")
LINE: Final = _words("line lineno linenumber row")
FIRST: Final = _words("firstseen first since createdat")
LAST: Final = _words("lastseen last lastoccurrence updatedat date timestamp when seenat")
RESOLVED: Final = _words("resolvedat resolved fixed fixedat isresolved resolvedon resolution status")
CLOSED: Final = frozenset(_words("resolved fixed closed done solved true yes"))
OPEN: Final = frozenset({"not resolved", "not fixed", "still open", "in progress", "to do", "won't fix"})
METHOD: Final = _words("method verb httpmethod")
TARGET: Final = _words("endpoint path url route uri pathname name")
SHAPE: Final = _words("shape schema fields returns output")
BODY: Final = _words("response body responsebody responseshape example")
TAILS: Final = _words("p95 p99 p90 max")
_TIMES: Final = _words("avg average mean p50 median latency avglatency duration time responsetime took elapsed now")
MEANS: Final = (*_words("ms milliseconds sessionms current value"), *_TIMES, *(f"{time}ms" for time in _TIMES))
SECONDS: Final = _words("seconds s sec durations durationseconds latencys latencyseconds times")
SAMPLES: Final = (*_words("samples sessionsamples requests"), *COUNT)
BEFORE: Final = _words("beforems was wasms before baseline baselinems previous previousms")
PATTERN: Final = _words("pattern match matches regex contains text message rule ignore filter")
REASON: Final = _words("reason why note comment description")

FIELDS: Final = {
    ERRORS: {*FINGERPRINT, *LINE, *COUNT, *MESSAGE, *TYPE, *WHERE, *RESOLVED, *FIRST, *LAST},
    API_SCHEMA: {*METHOD, *TARGET, *SHAPE, *BODY, *_words("status statuscode summary description")},
    PERFORMANCE: {*METHOD, *TARGET, *MEANS, *TAILS, *(f"{tail}ms" for tail in TAILS), *SECONDS},
    NOISE: {*PATTERN, *REASON, "auto"},
}
"""A map with one of these names is one entry; other maps have an entry under each name."""
