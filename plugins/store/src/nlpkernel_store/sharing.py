"""What of a version is there already, and what has to be written. Light: no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from nlpkernel_store.manifest import Blob, PackSize

#: Unchanged blobs that come to less go into the pack of the changed ones.
_OWN_PACK = 1 << 20

#: What a blob is known by: its digest, and its size in bytes.
Key = tuple[bytes, int]


@attrs.frozen(kw_only=True)
class Placement:
    """reused: blobs that stay where they are. written: keys of the packs to be written, none of them empty."""

    reused: Mapping[Key, Blob]
    written: Sequence[Sequence[Key]]


def place(wanted: Sequence[Key], known: Mapping[Key, Blob], packs: Mapping[str, PackSize]) -> Placement:
    """Decide for each of `wanted` (each once). known: blobs of the version before. packs: its packs that are still
    there.

    An old pack is used again if at least half of it is: so no more than twice the bytes of a version lie there for it.
    What is unchanged in other packs is written once more, into a pack of its own, which later versions use whole.
    """
    used: Counter[str] = Counter()
    for key in wanted:
        if key in known:
            used[known[key].pack] += key[1]
    good = {name for name, bytes_ in used.items() if name in packs and 2 * bytes_ >= packs[name].data}
    reused = {key: known[key] for key in wanted if key in known and known[key].pack in good}
    unchanged = [key for key in wanted if key in known and key not in reused]
    changed = [key for key in wanted if key not in known]
    if sum(size for _, size in unchanged) < _OWN_PACK:
        unchanged, changed = [], [key for key in wanted if key not in reused]
    return Placement(reused=reused, written=[keys for keys in (changed, unchanged) if keys])
