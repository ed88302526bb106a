"""A random sample of more than fits in memory."""

import random
from typing import Generic, List, TypeVar

Item = TypeVar("Item")


class RandomSample(Generic[Item]):
    """At most ``size`` of the items that are added, every choice being as likely, always the same.

    As long as there are no more than ``size``, they are all of them, in order. (Vitter 1985,
    algorithm R.)

    Attributes:
      items: the sample of the items so far.
      seen: how many have been added.
    """

    def __init__(self, size: int):
        self.size = size
        self.items: List[Item] = []
        self.seen = 0
        self._rng = random.Random(0)

    def add(self, item: Item) -> None:
        """Takes the item into account."""
        self.seen += 1
        if len(self.items) < self.size:
            self.items.append(item)
        elif (place := self._rng.randrange(self.seen)) < self.size:
            self.items[place] = item
