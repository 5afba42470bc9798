"""The starter plan that `nlpkernel init` writes."""

from __future__ import annotations

LANGUAGE_MODEL = """\
# A small language model. `nlpkernel check plan.toml` shows this plan filled, with every setting that is not
# written here; `nlpkernel plugins show NAME` explains the settings of a component.
name = "first"                      # the run's folder: runs/first

[train]
seed = 1                            # every random draw follows from it
steps = 400                         # or epochs = 2, or tokens = "300M"
batch = 16                          # samples of one step, over all workers
# micro = 8                         # samples of one forward; left out: the batch
clip = 1.0                          # largest global norm of the gradient
evaluate = { every = 100, start = true }
log = { every = 20 }
on_nan = "stop"                     # or "skip", "rollback"

# [[train.policy]]
# use = "early-stopping"
# patience = 3

[data]
use = "text"
source = "stdlib"                   # the text of this Python's standard library; your own:
# paths = ["corpus/*.txt"]          # relative to this file; also .jsonl, .csv, .tsv with `field`
window = 128                        # tokens of a sample
tokenizer = { use = "bpe", vocabulary = 2048 }      # or "bytes", "characters"

[model]
use = "gpt"                         # or "llama"
preset = "nano"                     # sizes can be written beside it: layers = 6

[optimizer]
use = "adamw"
lr = 2e-3
schedule = { use = "cosine", warmup = 40, final = 0.1 }

[precision]
use = "auto"                        # by hardware, and says what it picked

[checkpoint]
use = "store"
every = 200                         # steps; `nlpkernel resume runs/first` continues from the newest
keep = { last = 3, best = 1 }

[[monitor]]
use = "console"

[[monitor]]
use = "jsonl"
"""
