"""How many steps hold so many tokens."""

from __future__ import annotations

from nlpkernel.hookspecs.sampler import Sampler
from nlpkernel.sampling import Windows
from nlpkernel_text.packing import Packer, RowPacker


def steps_for(tokens: int, sampler: Sampler, packer: Packer) -> int:
    """The fewest windows that hold at least so many tokens."""
    if isinstance(packer, RowPacker):
        return _by_count(tokens, sampler, packer)
    return _by_size(tokens, sampler, packer)


def _by_size(tokens: int, sampler: Sampler, packer: Packer) -> int:
    """By the size of full rows. At most one row of an epoch is shorter, and counts as if it came first."""
    window, lost = packer.window, packer.samples * packer.window - packer.tokens
    if sampler.anywhere:
        window, lost = min(window, packer.tokens), 0

    def held(step: int) -> int:
        begun = -(-sampler.seen(step) // packer.samples)
        return sampler.seen(step) * window - lost * begun

    low, high = 0, 1
    while held(high) < tokens:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if held(middle) < tokens else (low, middle)
    return high


def _by_count(tokens: int, sampler: Sampler, packer: RowPacker) -> int:
    """By counting, because rows differ in length; whole epochs at once where windows end with them and each holds every
    row once."""
    step, left, lengths = 0, tokens, packer.lengths
    if isinstance(sampler, Windows) and sampler.partial == "step" and sampler.order is None:
        whole = (tokens - 1) // packer.tokens
        step, left = whole * int(sampler.per_epoch), tokens - whole * packer.tokens
    while left > 0:
        left -= sum(int(lengths[part.rows].sum()) for part in sampler.window(step))
        step += 1
    return step
