"""Error codes of the store, as `nlpkernel explain CODE` shows them."""

#: How messages name this component.
OWNER = "store of nlpkernel-plugin-store"

CODES: dict[str, tuple[str, str]] = {
    "STO001": (
        "a value of the state cannot be stored",
        "A version holds tensors and plain data: None, bool, int, float, str, bytes, list, dict, tuple, and\n"
        "nothing that only looks like one of them (numpy numbers, enums, subclasses). Nothing was written.\n"
        "The message names the leaf and whose it is. Its component_state or state method has to turn it\n"
        "into a plain value or a dense torch tensor of a type that safetensors knows.",
    ),
    "STO002": (
        "a version could not be written",
        "Writing ended with the error shown, after checkpoint.retries further tries: the disk or a quota is\n"
        "full, the folder is read-only, the remote store does not answer, ... What had been written of this\n"
        "version is removed again, and older versions were not touched. Make room (the message says how many\n"
        'bytes are needed and free), or keep fewer versions, and resume. on_failure = "continue" trains on.',
    ),
    "STO003": (
        "a version is damaged",
        "A file of the version is missing, cut short, or not what was written: its digest differs from the\n"
        "recorded one. A finished version never changes, so the disk, a copy, or somebody changed it.\n"
        "Nothing of it has been loaded. Take the version that the hint names, or restore the file.",
    ),
    "STO004": (
        "there is no such version",
        "A version is named by its name (200-3f9ac2...), by four or more first digits of its digest, by a\n"
        "step of the current line, by a tag, or as newest or best. The message lists those that fit or exist;\n"
        "`nlpkernel versions RUN` shows all. A run has its first one when its first save is complete.",
    ),
    "STO005": (
        "a version has a newer format",
        "The version was written by a later release of nlpkernel-plugin-store, which this one cannot read.\n"
        "Install that release or a later one: pip install -U nlpkernel-plugin-store.",
    ),
    "STO006": (
        "what the workers hold of a value does not make one",
        "The pieces that workers save of a tensor make up each worker's own tensor and, together, the whole,\n"
        "each element once; what is the same on all, or belongs to one, is saved once. The message names the\n"
        "leaf and what does not fit. The communicator says wrongly what its workers hold. No version was made.",
    ),
    "STO007": (
        "workers did not save",
        "A version is complete when every worker has written its part. The workers named did not within\n"
        "checkpoint.rank_timeout, or reported what failed, or the first worker does not see the file that they\n"
        "wrote: then they do not share one folder. Older versions are untouched. See their logs.",
    ),
    "STO008": (
        "that cannot be a tag",
        "A tag starts with a letter and goes on with letters, digits, dots, dashes and underscores; newest and\n"
        "best have a meaning already, and so have steps and names of versions.",
    ),
    "STO009": (
        "this is no run of the store",
        'The commands versions and rollback work on runs whose plan says [checkpoint] use = "store".',
    ),
    "STO010": (
        "files cannot be imported as a version",
        "`versions import` takes a folder that `versions export` wrote, or safetensors files of weights. The\n"
        "message says what is missing or does not fit. Nothing was changed.",
    ),
    "STO011": (
        "a file of the store cannot be read or changed",
        "Reading, tagging or removing ended with the error shown; the message names the place.",
    ),
    "STO050": (
        "a driver for remote versions is not installed",
        "checkpoint.url names a store that is reached through fsspec. fsspec itself comes with\n"
        'pip install "nlpkernel-plugin-store[remote]", S3 with "nlpkernel-plugin-store[s3]"; the message\n'
        "names the package for others. Nothing was started.",
    ),
    "STO051": (
        "the place of remote versions cannot be opened",
        "The driver does not take checkpoint.url, or what checkpoint.options and checkpoint.secrets say. What\n"
        "they may hold is written in the driver's documentation: s3fs for s3://.",
    ),
    "STO052": (
        "a place does not create conditionally",
        "A version is committed by creating a file on the condition that there is none of that name, so that\n"
        "two writers never overwrite each other. The file system, or the service behind it, was seen not to\n"
        "do that, or is not known to. It can be read from. Write to S3 or to a service that honours\n"
        "If-None-Match as S3 does, or to a local folder.",
    ),
    "STO053": (
        "the versions there belong to another run",
        "The first run that writes to a checkpoint.url owns it, by a file named owner there; the same file is\n"
        "in the run's folder (versions/owner). Another run would take the first one's files for leftovers and\n"
        "remove them. Give every run a URL of its own. A run that was replaced (--overwrite) or whose folder\n"
        "is gone is another one; to take over what lies there, remove the file owner there.",
    ),
}
