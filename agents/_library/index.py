"""Finds passages by the words of a question, ranked by BM25.

Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009),
https://doi.org/10.1561/1500000019. Headings and titles count as words of their passages, several times over.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .documents import Document, Passage
from .words import terms

_K1, _B = 1.2, 0.75  # how fast repetitions stop counting, and how much long passages are held against them
_TITLE_WEIGHT, _HEADING_WEIGHT = 2, 2
_SHARE_OF_BEST = 0.25
"""What scores less than this share of the best passage only shares a common word with the question."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    document: Document
    passage: Passage
    score: float


@dataclass(frozen=True, kw_only=True)
class _Entry:
    document: Document
    passage: Passage
    terms: Counter[str]


class Index:
    """In memory, built once, never changed: any thread may search it."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = {document.path: document for document in documents}
        self._entries = [
            _Entry(document=document, passage=passage, terms=_weighted(document, passage))
            for document in self.documents.values()
            for passage in document.passages
        ]
        self._in_how_many = Counter(term for entry in self._entries for term in entry.terms)
        self._mean_length = sum(entry.terms.total() for entry in self._entries) / max(len(self._entries), 1)

    def search(self, question: str, limit: int) -> list[Hit]:
        """The best passages first; none when the question shares no word with any of them."""
        wanted = terms(question)
        hits = [
            Hit(document=entry.document, passage=entry.passage, score=score)
            for entry in self._entries
            if (score := self._score(entry, wanted)) > 0
        ]
        hits.sort(key=lambda hit: hit.score, reverse=True)
        return [hit for hit in hits[:limit] if hit.score >= _SHARE_OF_BEST * hits[0].score]

    def _score(self, entry: _Entry, wanted: Counter[str]) -> float:
        length = 1 - _B + _B * entry.terms.total() / self._mean_length
        return sum(
            self._rarity(term) * count * (_K1 + 1) / (count + _K1 * length)
            for term in wanted
            if (count := entry.terms[term])
        )

    def _rarity(self, term: str) -> float:
        with_it = self._in_how_many[term]
        return math.log(1 + (len(self._entries) - with_it + 0.5) / (with_it + 0.5))


def _weighted(document: Document, passage: Passage) -> Counter[str]:
    weighted = terms(passage.text)
    for text, weight in ((document.title, _TITLE_WEIGHT), (passage.heading, _HEADING_WEIGHT)):
        for term, count in terms(text).items():
            weighted[term] += weight * count
    return weighted
