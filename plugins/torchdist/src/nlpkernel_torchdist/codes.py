"""The codes of this distribution's errors: title, cause and what to do."""

from __future__ import annotations

#: Whose errors and notices are.
OWNER = "communicator torchdist (nlpkernel-plugin-torchdist)"

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
    "TDI008": (
        "a trained parameter got no gradient",
        "A part of the model was not used in this window (a dropped layer, an expert without tokens), after it had\n"
        "been in the first one. Gradients that are exchanged beside the backward pass wait for all of them. Write\n"
        "`unused = true` in [communicator]: they are then exchanged after it, and what nobody used is left alone.",
    ),
    "TDI009": (
        "several workers of a machine would take the same device",
        "`device` names one accelerator by its number, and there are several workers on a machine. Write the name\n"
        'without a number ("cuda"), or "auto": each worker then takes the one of its own number. Which of them it\n'
        "sees at all is what CUDA_VISIBLE_DEVICES says.",
    ),
    "TDI030": (
        "a layer cannot be cut along `tensor`",
        "How a parameter may be cut is its role in the model's anatomy. Linear layers are cut by `column`, `row` or\n"
        "`vocab` (the bias of one that is cut by rows is `replicate`), embeddings by `vocab`. Whoever made the layer\n"
        "(the model, or a transform) may give its parameters the role `replicate`; then every worker has all of it.",
    ),
    "TDI040": (
        "a model cannot be cut into stages",
        "A pipeline runs the model's own forward on every stage, passes over the blocks of other stages, and sends\n"
        "the first argument of the next stage's first block. So the blocks of the anatomy must be called once each,\n"
        "in order; nothing else that depends on parameters may go from one to the next; they return a tensor, or a\n"
        "tuple or list that begins with one; and parameters outside of the blocks are registered in the order of\n"
        "their use.",
    ),
    "TDI041": (
        "micro-batches of a pipeline differ in shape",
        "All workers of a pipeline know beforehand what they will receive, so all micro-batches have one shape. The\n"
        "data is asked to pad them (`Requirements.fixed_shapes`); a data component that does not cannot be used with\n"
        "a pipeline.",
    ),
    "TDI042": (
        "a pipeline and a replaced backward pass",
        "A component that replaces the backward pass of each micro-batch (for gradients of single samples) needs the\n"
        "whole model in one process. Leave `pipeline` out, or that component.",
    ),
    "TDI020": (
        "what the launcher says does not fit together",
        "torchrun, Slurm and Kubernetes tell a process by variables which worker it is (RANK, WORLD_SIZE,\n"
        "MASTER_ADDR, MASTER_PORT, SLURM_PROCID, ...). The message names the variable, its value, and what it should\n"
        "be. Variables that were exported for all workers, or by an earlier job, are the usual reason.",
    ),
    "TDI021": (
        "an address or interface is not known here",
        "Workers on several machines listen on one network interface: that from which the first worker is reached,\n"
        "or `interface` of [communicator]. The name in MASTER_ADDR has to be known on every machine.",
    ),
    "TDI022": (
        "a worker was lost",
        "Its process ended without a word: it was killed, by somebody or by the system for want of memory, or its\n"
        "machine is gone. The message says where it was, as far as its last beat told. The launcher may start all\n"
        "workers again (torchrun --max-restarts, Slurm --requeue), which then continue from the newest version.",
    ),
    "TDI023": (
        "another worker failed",
        "The message is that worker's error, with its traceback. All workers end, since none can go on without it.",
    ),
    "TDI024": (
        "a worker is silent",
        "It runs, but has sent no beat: it is stopped (SIGSTOP, a debugger), its machine does not let it run, a\n"
        "library keeps the interpreter to itself, or the network to it is cut.",
    ),
    "TDI025": (
        "a worker is stuck",
        "It beats, and its loop has not got on for longer than `train.stall` allows (six times that outside the\n"
        "steps). The message says where its main thread is, and logs/rank-N.stack in the run's folder has all\n"
        'threads. Where a step rightly takes that long, write a larger `train.stall`, or "never".',
    ),
    "TDI026": (
        "a plan cannot run there",
        "`nlpkernel render` writes a script for a launcher only where the plan can run under it: the workers have to\n"
        "divide among the machines, several machines need `trusted_network`, and a restart needs [checkpoint].",
    ),
}
