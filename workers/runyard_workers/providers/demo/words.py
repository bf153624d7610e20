"""Words of a person's text and of a tool's names, made comparable."""

import re

_WORD = re.compile(r"[^\W_]+")
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDINGS = ("ations", "ation", "ions", "ing", "ion", "ies", "ers", "er", "es", "ed", "s", "e", "y")
_STEM_MIN = 3
_PREFIX_MIN = 4
_FILLER_TEXT = """
a about all also am an and any are as at be been but by can could did do does for from get give had has have hello hey
hi how i if in into is it its just let like me my need now of on one or our out over please say should show so some tell
than thank thanks that the their them then there these they this those to too up us use using very want was we were what
when where which who why will with work works would you your
"""


def words(text: str) -> list[str]:
    """`"searchDocs_v2"` -> `["search", "docs", "v2"]`, in order, lower case."""
    return _WORD.findall(_CAMEL_HUMP.sub(" ", text).lower())


FILLER = frozenset(words(_FILLER_TEXT))
"""Words that tell nothing about what a text is about."""


def telling(text: str) -> frozenset[str]:
    """The stems of the words that are no filler."""
    return frozenset(stem(word) for word in words(text) if word not in FILLER)


def stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_MIN:
            return word[: -len(ending)]
    return word


def alike(one: str, other: str) -> bool:
    """Whether two stems are of one family: `calcul` (calculation) and `calculat` (calculate)."""
    shorter, longer = sorted((one, other), key=len)
    return shorter == longer or (len(shorter) >= _PREFIX_MIN and longer.startswith(shorter))


def overlap(wanted: frozenset[str], offered: frozenset[str]) -> frozenset[str]:
    """The stems of `wanted` that have a relative in `offered`."""
    return frozenset(one for one in wanted if any(alike(one, other) for other in offered))
