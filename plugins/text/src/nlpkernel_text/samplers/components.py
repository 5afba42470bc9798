"""The sampler components. Light: what does the work is imported when the sampler is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.sampler import Sampler, Samples


@component
class Shuffle:
    """Another order of all samples in each epoch. Of a mixture with weights, samples of each source in its share; of
    each source all in turn, in another order each time."""

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """A keyed permutation: nothing is held."""
        from nlpkernel_text.samplers.orders import shuffled

        return shuffled(samples)


@component
class Order:
    """All samples as they stand, in each epoch."""

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """In order."""
        from nlpkernel_text.samplers.orders import in_order

        return in_order(samples)


@component
class Random:
    """Samples that begin anywhere in the text, drawn anew for each step."""

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """Draws."""
        from nlpkernel_text.samplers.draws import Anywhere

        return Anywhere(samples)


@component
class LengthGrouped:
    """Samples of about the same length in a micro-batch, so that there is little padding: each epoch is shuffled, cut
    into pools of so many batches, and each pool sorted by length; the batches of a pool come in any order."""

    pool: int = setting(default=50, ge=1, help="batches among which samples are sorted by length")

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """Sorted within pools."""
        from nlpkernel_text.samplers.lengths import grouped

        return grouped(samples, self.pool)


@component
class TokenBudget:
    """As many samples in a micro-batch as `tokens` allow, padding counted: few long ones, or many short ones. A step is
    as many micro-batches as `batch` and `micro` of `[train]` give: batch / micro."""

    tokens: int = setting(ge=1, unit="count", help="most tokens of a micro-batch, padding counted")
    pool: int = setting(
        default=200, ge=1, help="micro-batches' worth of samples among which they are sorted by length"
    )

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """Cut by tokens."""
        from nlpkernel_text.samplers.budget import TokenBudgeted

        return TokenBudgeted(samples, self.tokens, self.pool)


@component
class Balanced:
    """Each class as often as the others, whatever its size: each turn of as many samples as there are classes holds one
    of each. Of each class all samples come in turn. An epoch is as many samples as there are."""

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """Classes in turn."""
        from nlpkernel_text.samplers.classes import balanced

        return balanced(samples)


@component
class Stratified:
    """Each micro-batch holds the classes in their shares, as nearly as its size allows; each epoch holds every sample
    once, in another order."""

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """Classes spread evenly."""
        from nlpkernel_text.samplers.classes import stratified

        return stratified(samples)


@component
class Weighted:
    """Classes, sources or samples as often as their weights say.

    With `weights` by class or source: shares that are met to within a few samples at any moment, all samples of each in
    turn. Without: each sample is drawn anew, as often as the field says that `fields.weight` names."""

    weights: dict[str, float] = setting(
        factory=dict, gt=0, help="relative weight of each class, or of each source of a mixture, by name"
    )

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """By weight."""
        from nlpkernel_text.samplers.weights import weighted

        return weighted(samples, self.weights)


@component
class Curriculum:
    """Easy samples first (Platanios et al., "Competence-based Curriculum Learning", NAACL 2019): step t draws from the
    easiest share c(t) = sqrt(start^2 + (1 - start^2) t / over) of all samples. After `over` steps, epochs as with
    `shuffle`."""

    over: int = setting(ge=1, unit="count", help="steps until all samples are drawn from")
    start: float = setting(
        default=0.1, gt=0, le=1, help="share of the samples that the first step draws from"
    )
    by: Literal["length", "weight"] = setting(
        default="length",
        help="what makes a sample hard: its length, or a large value of the field that `fields.weight` names",
    )

    @hookimpl
    def create_sampler(self, samples: Samples) -> Sampler:
        """Draws from a growing share."""
        from nlpkernel_text.samplers.draws import Competence

        return Competence(samples, self.over, self.start, self.by)
