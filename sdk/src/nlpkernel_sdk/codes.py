"""Error codes of the SDK, with what `nlpkernel explain` says about each."""

from __future__ import annotations

#: Code to title and explanation. SDK001 to SDK009: the scaffold; SDK010 to SDK019: conformance; SDK020 on: components.
CODES: dict[str, tuple[str, str]] = {
    "SDK001": (
        "there is no such slot or extension point",
        "`nlpkernel new plugin` writes components for the slots and the shared extension points, which\n"
        "`nlpkernel new --help` lists. For a point that a plugin alone has, begin with the scaffold of one\n"
        "that is like it.",
    ),
    "SDK002": (
        "a plugin cannot have this name",
        "The name of a plugin is what a plan writes in `use`: lower-case letters and digits, words joined by\n"
        "hyphens, a letter first. The distribution, its package and the class are named after it.",
    ),
    "SDK003": (
        "there is something in the way of a new plugin",
        "The folder or file that is to be written exists, and is not written over. Choose another name, or\n"
        "another folder with --into.",
    ),
    "SDK010": (
        "no such distribution is installed, or it offers nothing",
        "The conformance kit looks at what is installed in this environment. Install the distribution first,\n"
        "in a working tree with `pip install -e .`; `nlpkernel plugins` lists what is there.",
    ),
    "SDK011": (
        "the table for the conformance kit is wrong",
        "[tool.nlpkernel.conform] in pyproject.toml, or the arguments of `conformance`, name a component that\n"
        "the distribution does not offer, or a key that means nothing. Components are named by point and\n"
        'name: "optimizer.sgd".',
    ),
    "SDK012": (
        "a known failure is not one",
        "A check that is listed as a known failure passes, or no such check was run. Each known failure is a\n"
        "debt that is paid at some time: take it out of the list.",
    ),
    "SDK013": (
        "fewer checks were run than the floor",
        "`at_least` (or `at-least`) says how many checks have to be run, so that a green result is not one\n"
        "of nothing. Checks that were skipped do not count. The list of skipped ones says why.",
    ),
    "SDK014": (
        "a distribution does not conform",
        "At least one check of the conformance kit failed. Each line names the check, the component, what was\n"
        "found, and why it matters. Mend it, or list it as known with a reason.",
    ),
    "SDK015": (
        "a lock cannot hold this result",
        "`nlpkernel conform DIST --lock FILE` writes what it found into the lock of a plan that uses the\n"
        "distribution, so that whoever runs the lock sees how the very sources were found. The plan has to\n"
        "use it, and the sources have to be those that were locked.",
    ),
    "SDK016": (
        "files for the checks cannot be prepared",
        "`prepare` in [tool.nlpkernel.conform] names a script that writes what the checks need into the folder whose "
        "path it is given; it failed. Run it by itself, with the path of an empty folder.",
    ),
    "SDK020": (
        "a file of the tiny data cannot be read",
        "The component `tiny-text` of the SDK was given a `path` that this user cannot read.",
    ),
    "SDK021": (
        "too few documents of the tiny data are left",
        "The stages of a plan with the SDK's `tiny-text` dropped all documents but one. Give the component\n"
        "settings that keep more, or more `documents`.",
    ),
    "SDK022": (
        "a save into memory failed",
        "The store `memory` of the SDK was told to fail at this save (`fail_at`), to see what a run makes of it.",
    ),
    "SDK023": (
        "there is no such version in memory",
        "The store `memory` of the SDK keeps versions as long as its process lives, by the run's folder.",
    ),
}
