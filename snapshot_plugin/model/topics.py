"""The topics of conversations: frequent words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Topic", "common_topics", "keywords"]

_WORD = re.compile(r"[^\W\d_]{3,30}")
_SEVERAL = 2
_TOO_COMMON = 0.6
_ENOUGH = 10

_NO_TOPIC = """
    about above actually add added adding after again all also always and another any anything are around back
    because been before being below best better between both but call called came can cannot case change
    changed changes check code come could currently did different does doing done down each either else end
    ensure error even every everything example existing few file files find first fix fixed follow following
    for found from full function get gets getting give given goes going good got great had has have having
    hello help her here hey him his how however implement inside instead into issue its itself just keep kind
    know last less let like line lines list little long look looks lot made make makes making many may maybe
    mean might more most much must name need needed needs never new next nice not nothing now off okay old
    once one only other our out over own part please point possible problem put question really right run
    running said same say see seems set shall she should show simple since some something start still stop
    such sure take tell than thank thanks that the their them then there these they thing things think this
    those though through time together too tried true try trying two under until update updated use used user
    uses using value very want wants was way well went were what when where whether which while who whole why
    will with within without work working works would write wrong yes yet you your
"""
"""Words that occur in every conversation with a coding agent, and are therefore not topics."""

_STOP = frozenset(_NO_TOPIC.split())


class Topic(NamedTuple):
    """A word, and the number of conversations that have it as a keyword."""

    term: str
    sessions: int


def keywords(texts: Iterable[str], *, limit: int = 10) -> list[str]:
    """The words that occur in most of *texts* (the user's messages of a session, for example), most frequent first.

    A text counts once per word, so a single pasted log does not dominate.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(_words(text)))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return ranked[:limit]


def common_topics(sessions: Iterable[Iterable[str]], *, limit: int = 10) -> list[Topic]:
    """The keywords that most sessions share.

    If there are enough sessions, words that nearly all of them have are left out.
    """
    found = [frozenset(terms) for terms in sessions]
    counts = Counter(term for terms in found for term in terms)
    most = len(found) * _TOO_COMMON if len(found) >= _ENOUGH else len(found)
    told = [(term, count) for term, count in counts.items() if count <= most]
    shared = [pair for pair in told if pair[1] >= _SEVERAL] or told
    return [Topic(*pair) for pair in sorted(shared, key=lambda pair: (-pair[1], pair[0]))[:limit]]


def _words(text: str) -> Iterator[str]:
    return (word for word in _WORD.findall(text.lower()) if word not in _STOP)
