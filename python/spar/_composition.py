# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compositions by their slots."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Composition:
    """A collective composed of parts by their names: which entries a rank sends (`select`), how they are encoded
    (`store`), over which topology (`over`) and by which schedule (`by`). None is the default. str() is the text, which
    every argument `algorithm` takes: docs/guide/text.md.

    >>> str(Composition(select="exact_topk:0.01", store="coded"))
    'select=exact_topk:0.01,store=coded'
    """

    by: str | None = None
    select: str | None = None
    store: str | None = None
    over: str | None = None

    def __str__(self) -> str:
        slots = {"select": self.select, "store": self.store, "over": self.over, "by": self.by}
        return ",".join(f"{slot}={part}" for slot, part in slots.items() if part is not None) or "by=cheapest"
