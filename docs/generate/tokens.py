"""The tokens of verdicts as a table in explain.md."""

from __future__ import annotations

from docs.generate import markdown
from pykai.engine.reasons import CATEGORIES, DESCRIPTIONS, SEARCHES, SearchToken

_BEGIN, _END = "<!-- tokens -->\n", "<!-- end of tokens -->"


def with_table(text: str) -> str:
    """The page with an up-to-date table."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + table() + "\n" + _END + rest.partition(_END)[2]


def table() -> str:
    """Tokens with their category and meaning, in the order of precedence."""
    own = [(f"`{token}`", str(category), _meaning(token)) for token, category in CATEGORIES.items()]
    actions = "`, `".join(SEARCHES)
    searches = [(f"...`{token}`", "", DESCRIPTIONS[token]) for token in SearchToken]
    rows = [*own, *searches]
    return markdown.table(("token", "category", "meaning"), rows) + f"\n... stands for one of `{actions}`.\n"


def _meaning(token: str) -> str:
    codes = {
        "QueueDoesNotExist": "the queue, or a queue above it, does not exist",
        "OverLimit": "the limit of the queue, or of a queue above it, would be exceeded",
        "NonPreemptibleOverQuota": "non-preemptible work would exceed the quota of the queue or of one above it",
        "ReclaimQueueAtFairShare": DESCRIPTIONS[SearchToken.AT_FAIR_SHARE],
    }
    return codes.get(token) or DESCRIPTIONS[token]
