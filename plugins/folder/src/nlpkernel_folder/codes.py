"""Error codes of the folder store, as `nlpkernel explain CODE` shows them."""

CODES: dict[str, tuple[str, str]] = {
    "FLD001": (
        "a value of the state cannot be stored",
        "A version holds tensors and plain data: None, bool, int, float, str, bytes, list, dict, tuple, and\n"
        "nothing that only looks like one of them (numpy numbers, enums, subclasses). Nothing was written.\n"
        "The message names the leaf. Whoever gave it (its component_state or state method) has to turn it\n"
        "into a plain value or a dense torch tensor of a type that safetensors knows.",
    ),
    "FLD002": (
        "a version cannot be written",
        "Writing ended with the error shown: the disk or a quota is full, the folder is read-only, ...\n"
        "What had been written of this version is removed again, and older versions were not touched.\n"
        "Make room (the message says how many bytes are needed and free), or keep fewer versions with\n"
        "checkpoint.keep, and resume.",
    ),
    "FLD003": (
        "a version is damaged",
        "A file of the version is missing, or is not what was written: its size or its SHA-256 differs from\n"
        "the manifest's. A finished version never changes, so the disk, a copy, or somebody changed it.\n"
        "Nothing of it has been loaded. Take the version that the hint names, or restore the file.",
    ),
    "FLD004": (
        "there is no such version",
        "The run has no version of that name, or none at all. It has its first one when the first save is\n"
        "complete (checkpoint.every steps, or the end of the run). The message lists those that exist.",
    ),
    "FLD005": (
        "a version has a newer format",
        "The version was written by a later release of nlpkernel-plugin-folder, which this one cannot read.\n"
        "Install that release or a later one: pip install -U nlpkernel-plugin-folder.",
    ),
    "FLD006": (
        "folder keeps the state of one process",
        "The run has more than one worker, and this store writes what one process holds.\n"
        "Use a checkpoint component that saves from every worker into one version.",
    ),
}
