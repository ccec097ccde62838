"""What is kept of one backward with dynamic sizes: as much as a bound allows."""

import collections
import dataclasses


@dataclasses.dataclass(frozen=True)
class Bound:
    """How many programs are kept, and how many bytes they may hold together."""

    most: int  # 0: any number
    most_bytes: int

    def exceeded_by(self, number, held):
        """Whether so many that hold so many bytes are too much. One alone never is."""
        return number > 1 and (0 < self.most < number or held > self.most_bytes)


class Kept:
    """Values by key. Those that were not used for longest go where the Bound is exceeded."""

    def __init__(self, bound):
        self._bound, self._held = bound, 0
        self._values = collections.OrderedDict()  # key -> (value, bytes); the last one used is last

    def __len__(self):
        return len(self._values)

    @property
    def held(self):
        """The bytes of all values together."""
        return self._held

    def values(self):
        """All values, the one that was not used for longest first."""
        return [value for value, _ in self._values.values()]

    def find(self, key):
        """The value, which becomes the last one used; None where there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def add(self, key, value, held):
        """Keeps the value of a new key, which holds so many bytes. How many values went."""
        self._values[key] = value, held
        self._held += held
        gone = 0
        while self._bound.exceeded_by(len(self._values), self._held):
            _, (_, bytes_of_one) = self._values.popitem(last=False)
            self._held -= bytes_of_one
            gone += 1
        return gone
