"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "TDI001": (
        "the layout does not fit the number of workers",
        "`data` x `tensor` x `pipeline` is the number of workers. Leave `data` out: it follows from the others.",
    ),
    "TDI002": (
        "workers do not agree",
        "Before the first exchange all workers compare the plan, the plugins and their sources, the versions of\n"
        "Python, torch and the kernel, the data, and the parameters of the model. The message names the first line\n"
        "that differs, and on which worker. Install the same releases everywhere, and start all workers with the\n"
        "same plan.",
    ),
    "TDI003": (
        "the workers did not come together",
        "A worker waits for the others before the run begins. The message says who is missing. Look at what they have\n"
        "logged; whether the address can be reached from there; and whether something else listens on the port.",
    ),
    "TDI004": (
        "workers on several machines need trusted_network",
        "torch.distributed neither authenticates nor encrypts what it sends: anybody who can reach the ports can read\n"
        "and change weights and gradients. On one machine the workers listen on the loopback interface only. For\n"
        "several machines, put them into a network of their own and write `trusted_network = true` in\n"
        "[communicator].",
    ),
    "TDI005": (
        "the layout does not fit the model",
        "A model is cut along its blocks (pipeline) and along the widths of its layers (tensor). The message says\n"
        "which number does not divide, and what it would have to be.",
    ),
    "TDI006": (
        "the optimizer needs whole tensors",
        "Some optimizers update an element from others of the same matrix (Adafactor, Muon). A worker that holds a\n"
        "piece of a matrix cannot do that. Use `shard` 0 or 1 (which gives whole tensors to each worker) and no\n"
        "`tensor`, or an optimizer that works element by element.",
    ),
    "TDI007": (
        "an exchange between workers failed",
        "A worker has ended, or the network between them has failed, while the others were in an exchange. The\n"
        "message says who is missing, where that is known. Under supervision (`--restarts N`) the run begins again\n"
        "from the newest version.",
    ),
    "TDI030": (
        "a layer cannot be cut along `tensor`",
        "How a parameter may be cut is its role in the model's anatomy. Linear layers are cut by `column`, `row` or
"
        "`vocab` (the bias of one that is cut by rows is `replicate`), embeddings by `vocab`. Whoever made the layer (the
"
        "model, or a transform) may give its parameters the role `replicate`; then every worker has all of it.",
    ),
    "TDI040": (
        "a model cannot be cut into stages",
        "A pipeline runs the model's own forward on every stage, passes over the blocks of other stages, and sends the
"
        "first argument of the next stage's first block. So the blocks of the anatomy must be called once each and in
"
        "order; nothing else that depends on parameters may go from one to the next; they return a tensor, or a tuple or
"
        "list that begins with one; and parameters outside of the blocks are registered in the order of their use.",
    ),
    "TDI041": (
        "micro-batches of a pipeline differ in shape",
        "All workers of a pipeline know beforehand what they will receive, so all micro-batches have one shape. The data
"
        "is asked to pad them (`Requirements.fixed_shapes`); a data component that does not cannot be used with `pipeline`.",
    ),
    "TDI042": (
        "a pipeline and a replaced backward pass",
        "A component that replaces the backward pass of each micro-batch (for gradients of single samples) needs the whole
"
        "model in one process. Leave `pipeline` out, or that component.",
    ),
}
