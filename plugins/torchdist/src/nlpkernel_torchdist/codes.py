"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "TDI001": (
        "the layout does not fit the number of workers",
        "`data` x `tensor` x `pipeline` is the number of workers. Leave `data` out: it follows from the others.",
    ),
    "TDI002": (
        "workers do not agree",
        "Before the first exchange all workers compare the plan, the plugins and their sources, the versions of
"
        "Python, torch and the kernel, the data, and the parameters of the model. The message names the first line
"
        "that differs, and on which worker. Install the same releases everywhere, and start all workers with the
"
        "same plan.",
    ),
    "TDI003": (
        "the workers did not come together",
        "A worker waits for the others before the run begins. The message says who is missing. Look at what they have\n"
        "logged; whether the address can be reached from there; and whether something else listens on the port.",
    ),
    "TDI004": (
        "workers on several machines need trusted_network",
        "torch.distributed neither authenticates nor encrypts what it sends: anybody who can reach the ports can read
"
        "and change weights and gradients. On one machine the workers listen on the loopback interface only. For
"
        "several machines, put them into a network of their own and write `trusted_network = true` in
"
        "[communicator].",
    ),
    "TDI005": (
        "the layout does not fit the model",
        "A model is cut along its blocks (pipeline) and along the widths of its layers (tensor). The message says
"
        "which number does not divide, and what it would have to be.",
    ),
    "TDI006": (
        "the optimizer needs whole tensors",
        "Some optimizers update an element from others of the same matrix (Adafactor, Muon). A worker that holds a
"
        "piece of a matrix cannot do that. Use `shard` 0 or 1 (which gives whole tensors to each worker) and no
"
        "`tensor`, or an optimizer that works element by element.",
    ),
    "TDI007": (
        "an exchange between workers failed",
        "A worker has ended, or the network between them has failed, while the others were in an exchange. The
"
        "message says who is missing, where that is known. Under supervision (`--restarts N`) the run begins again
"
        "from the newest version.",
    ),
}
