"""The task components. Light: what does the work is imported when a task is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel_tasks.measures import Measure

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.task import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer

#: The metrics that "best" can go by, and which direction is better.
Main = Literal["loss", "accuracy", "f1_micro", "f1_macro", "matthews", "calibration_error"]


@component
class Classification:
    """One class for each row: a text has one of several labels (`fields.label`), or with `several` any number of them
    (`fields.labels`)."""

    several: bool = setting(
        default=False, help="a text has none, one or several of the labels, each by itself"
    )
    threshold: float = setting(
        default=0.5, gt=0, lt=1, help="with `several`: a label is said if its probability is above this"
    )
    weights: Literal["balanced"] | dict[str, float] | None = setting(
        default=None,
        gt=0,
        help="weights of the classes in the loss, by name, 1 for those left out; "
        '"balanced": the rarer the class, the more (samples / (classes * samples of the class))',
    )
    smoothing: float = setting(
        default=0.0, ge=0, lt=1, help="share of each label that is spread over all classes, in training"
    )
    main: Main = setting(default="accuracy", help='the metric that "best" is judged by')

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """What goes with one label each, or with several."""
        if self.several:
            if self.weights == "balanced":
                yield "weights", "where a text has several labels, weights are given by name"
            if self.main in ("matthews", "calibration_error"):
                yield "main", f"{self.main} is a metric of texts that have one label each"
        elif self.threshold != 0.5:
            yield "threshold", "where a text has one label, it is the likeliest; `threshold` is for `several`"

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="classification")

    @hookimpl
    def create_task(self, run: Run, labels: Sequence[str], counts: Sequence[int]) -> Task:
        """The task. Raise DataError for data without classes, and for weights of classes that it does not have."""
        from nlpkernel_tasks.classification import Classifying, class_weights

        weights = class_weights(self.weights, labels, counts)
        if self.several:
            from nlpkernel_tasks.multilabel import Labelling

            assert weights is not None, "check_settings refuses balanced ones"
            return Labelling(labels, weights, self.smoothing, self.main, self.threshold)
        return Classifying(labels, weights, self.smoothing, self.main)


@component
class Tokens:
    """A tag for each word: names, parts of speech, other stretches of a text. Tags of entities ("B-PER") are counted as
    entities too."""

    weights: dict[str, float] | None = setting(
        default=None, gt=0, help="weights of the tags in the loss, by name, 1 for those left out"
    )
    smoothing: float = setting(
        default=0.0, ge=0, lt=1, help="share of each tag that is spread over all tags, in training"
    )
    main: Literal["loss", "accuracy", "f1_macro", "entity_f1", "entity_f1_macro"] = setting(
        default="accuracy",
        help='the metric that "best" is judged by; of entities: entity_f1',
    )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="tokens")

    @hookimpl
    def create_task(self, run: Run, labels: Sequence[str]) -> Task:
        """The task. Raise DataError for data without tags, and for weights of tags that it does not have."""
        from nlpkernel_tasks.tagging import Tagging

        return Tagging(labels, self.weights or {}, self.smoothing, self.main)


@component
class Seq2seq:
    """A second text is written to a first: translation, summaries, answers. `fields.target` is the second."""

    smoothing: float = setting(
        default=0.0, ge=0, lt=1, help="share of each token that is spread over the vocabulary, in training"
    )
    start: str | None = setting(
        default=None, help="name of the token that a second text begins after; left out: the end token"
    )
    beams: int = setting(
        default=4,
        ge=1,
        help="texts that are followed at once when one is searched; 1: the likeliest token each time",
    )
    length: float = setting(
        default=1.0,
        ge=0,
        help="a text's score is its log-probability divided by its number of tokens to this power; a higher one "
        "prefers longer texts",
    )
    most: int = setting(default=128, ge=1, help="most tokens of a text that is written, the end counted")
    temperature: float = setting(
        default=0.0,
        ge=0,
        help="0: the text of the best score is searched; above 0: each token is drawn, by the logits divided by this. "
        "The same seed and first text give the same",
    )
    top_k: int | None = setting(
        default=None, ge=1, help="drawn from so many of the likeliest tokens only; left out: from all"
    )
    top_p: float = setting(
        default=1.0,
        gt=0,
        le=1,
        help="drawn from the fewest likeliest tokens only whose probability is this together; 1: from all",
    )
    measures: tuple[Measure, ...] = setting(
        default=("chrf",), help="what written texts are compared by: bleu (needs sacrebleu), chrf, rouge"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """What says how to draw where nothing is drawn."""
        for name, given in (("top_k", self.top_k is not None), ("top_p", self.top_p < 1)):
            if given and not self.temperature:
                yield name, f"`{name}` is for texts that are drawn, with a `temperature` above 0"

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="seq2seq")

    @hookimpl
    def create_task(self, run: Run, tokenizer: Tokenizer) -> Task:
        """The task. Raise DataError for a tokenizer that has no end, or no token of the name in `start`."""
        from nlpkernel_tasks.decoding import Drawing, Search
        from nlpkernel_tasks.pieces import end_and_start
        from nlpkernel_tasks.seq2seq import Writing

        end, start = end_and_start(tokenizer, self.start)
        how = Search(start=start, end=end, most=self.most, beams=self.beams, length=self.length)
        drawing = None
        if self.temperature:
            drawing = Drawing(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
        return Writing(how, self.smoothing, self.measures, drawing, run.seed)


@component
class Pairs:
    """Which second text belongs to a first: vectors of sentences, learnt by contrast with the others of a micro-batch.
    `fields.target` is the second text."""

    temperature: float = setting(
        default=0.05,
        gt=0,
        help="what the likeness of two vectors is divided by, for a model that learns no scale",
    )
    candidates: int = setting(
        default=1000,
        ge=2,
        help="an evaluation finds each text's own among so many, the first of the split; all vectors are held at once",
    )
    main: Literal["loss", "recall_1", "recall_5", "recall_10", "mrr"] = setting(
        default="mrr", help='the metric that "best" is judged by'
    )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="pairs")

    @hookimpl
    def create_task(self, run: Run) -> Task:
        """The task."""
        from nlpkernel_tasks.pairs import Pairing

        return Pairing(self.temperature, self.candidates, self.main)


@component
class ImageText:
    """Which image belongs to a text, learnt by contrast with the others of a micro-batch (CLIP: Radford et al., 2021).
    `fields.image` is the image."""

    temperature: float = setting(
        default=0.07,
        gt=0,
        help="what the likeness of two vectors is divided by, for a model that learns no scale",
    )
    candidates: int = setting(
        default=1000,
        ge=2,
        help="an evaluation finds each text's own image among so many, the first of the split; all vectors are held "
        "at once",
    )
    mean: tuple[float, float, float] = setting(
        default=(0.48145466, 0.4578275, 0.40821073),
        help="of red, green and blue (from 0 to 1), which is taken off an image; left out: CLIP's",
    )
    std: tuple[float, float, float] = setting(
        default=(0.26862954, 0.26130258, 0.27577711),
        gt=0,
        help="of red, green and blue, which an image is divided by then; left out: CLIP's",
    )
    main: Literal["loss", "recall_1", "recall_5", "recall_10", "mrr"] = setting(
        default="mrr", help='the metric that "best" is judged by'
    )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="image-text")

    @hookimpl
    def create_task(self, run: Run) -> Task:
        """The task."""
        from nlpkernel_tasks.image_text import ImagePairing

        return ImagePairing(self.temperature, self.candidates, self.main, self.mean, self.std)


@component
class Mlm:
    """Masked language modelling (Devlin et al., 2019): some tokens are hidden, and restored from those around them.
    Which, is drawn anew each time that a row is trained on (Liu et al., 2019)."""

    share: float = setting(default=0.15, gt=0, lt=1, help="share of the tokens that are to be restored")
    masked: float = setting(
        default=0.8, ge=0, le=1, help="share of those that the mask stands in the place of"
    )
    replaced: float = setting(
        default=0.1,
        ge=0,
        le=1,
        help="share of those that any other token stands in the place of; the rest stay as they are",
    )
    words: bool = setting(default=False, help="whole words are chosen, all their pieces together")
    mask: str = setting(default="[MASK]", min_length=1, help="name of the token that masks")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Shares that are more than there is."""
        if self.masked + self.replaced > 1 + 1e-9:
            yield "replaced", f"masked and replaced are {self.masked + self.replaced:g} together, more than 1"

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="mlm")

    @hookimpl
    def create_task(self, run: Run, tokenizer: Tokenizer) -> Task:
        """The task. Raise DataError for a tokenizer that has no mask, or does not tell what words are."""
        from nlpkernel_tasks.masking import Masking
        from nlpkernel_tasks.mlm import MaskedModelling
        from nlpkernel_tasks.pieces import Pieces

        pieces = Pieces.of(tokenizer, self.mask, self.words)
        return MaskedModelling(Masking(pieces, self.share, self.masked, self.replaced))
