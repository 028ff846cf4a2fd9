"""Creating, comparing and dropping the indexes that the parts of the store declare."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from pymongo.errors import OperationFailure

if t.TYPE_CHECKING:
    from collections.abc import Iterable

    from pymongo.collection import Collection

    from ..job import Document

_OTHER_OPTIONS, _OTHER_KEYS = 85, 86


@dataclass(frozen=True, slots=True)
class Index:
    """An index as a part of the store declares it, beside the queries that it serves.

    One that equals an index of the henri framework in keys and options has its name, to the
    letter; every other begins with ``fhj_`` and has keys that henri does not use. Otherwise
    henri would not start on the same collections (B4).
    """

    name: str
    keys: dict[str, int]
    options: dict[str, t.Any] = field(default_factory=dict)

    def differs_from(self, stored: t.Mapping[str, t.Any]) -> bool:
        """Whether an index of this name, as the server describes it, is another one."""
        expected = {"unique": False, "partialFilterExpression": None, **self.options}
        actual = {"unique": False, "partialFilterExpression": None, **stored}
        # The order of an index's keys is what makes it serve a query.
        return stored["key"] != list(self.keys.items()) or any(
            actual[option] != expected[option] for option in expected
        )


def create(collection: Collection[Document], indexes: Iterable[Index]) -> list[str]:
    """See to it that the indexes are there as declared. Return the names of those made.

    One that has the name and another shape, as an older version left it, is replaced.
    """
    stored = collection.index_information()
    made = []
    for index in indexes:
        if index.name in stored and not index.differs_from(stored[index.name]):
            continue
        _create(collection, index)
        made.append(index.name)
    return made


def wrong(collection: Collection[Document], indexes: Iterable[Index]) -> list[str]:
    """Return what is wrong with a collection's indexes, a sentence each (Q13)."""
    stored, declared = collection.index_information(), list(indexes)
    if len(declared) > 1 and not any(index.name in stored for index in declared):
        return [f"{collection.name} has none of its {len(declared)} indexes."]
    problems = []
    for index in declared:
        if index.name not in stored:
            problems.append(f"{collection.name} has no index {index.name} {index.keys}.")
        elif index.differs_from(stored[index.name]):
            problems.append(f"The index {index.name} of {collection.name} is not {index.keys}.")
    return problems


def _create(collection: Collection[Document], index: Index) -> None:
    keys = list(index.keys.items())
    try:
        collection.create_index(keys, name=index.name, **index.options)
    except OperationFailure as error:
        if error.code not in {_OTHER_OPTIONS, _OTHER_KEYS}:
            raise
        if index.name not in collection.index_information():
            # The very keys under somebody else's name serve as well, and are not ours to drop.
            raise
        collection.drop_index(index.name)
        collection.create_index(keys, name=index.name, **index.options)
