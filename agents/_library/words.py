"""The words of a text as the search compares them: without filler words, and cut down to their stems."""

import re
from collections import Counter

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_FILLER_TEXT = """
a about after all also am an and any are as at be because been before being both but by can could did do does doing
done each for from get give had has have having he her here his how i if in into is it its itself let like may me
might more most must my need no nor not of on one only or other our out over own same shall she should so some such
than that the their them then there these they this those through to too up us use using very want was we were what
when where whether which while who why will with without would yes you your
"""
_FILLER = frozenset(_FILLER_TEXT.split())
_REPLACED = {"ies": "y", "ied": "y", "ency": "ent", "ence": "ent", "ments": "", "ment": ""}
_REMOVED = ("ings", "ing", "ions", "ion", "ed", "es", "s")
_DOUBLED = re.compile(r"([^aeioulsz])\1$")  # stopp(ing), but call(ing)
_STEM_MIN = 3


def terms(text: str) -> Counter[str]:
    """`"Retrying the retries"` -> `{"retry": 2}`."""
    return Counter(stem(word) for word in _WORD.findall(text.lower()) if word not in _FILLER)


def stem(word: str) -> str:
    """Removes the commonest English endings. It need not give a word, only the same for related ones."""
    for ending, replacement in _REPLACED.items():
        if _ends_in(word, ending):
            return word.removesuffix(ending) + replacement
    for ending in _REMOVED:
        if _ends_in(word, ending) and not word.endswith("ss"):
            return _DOUBLED.sub(r"\1", word.removesuffix(ending)).removesuffix("e")
    return word.removesuffix("e") if len(word) > _STEM_MIN else word


def _ends_in(word: str, ending: str) -> bool:
    return word.endswith(ending) and len(word) - len(ending) >= _STEM_MIN
