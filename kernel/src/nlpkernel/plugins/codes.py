"""Error codes of discovery and activation, with what `nlpkernel explain` says about each."""

from __future__ import annotations

#: Code to title and explanation. NK030 to NK049: discovery and doctor; NK050 to NK069: activation.
CODES: dict[str, tuple[str, str]] = {
    "NK030": (
        "the metadata of an installed distribution is broken",
        "A metadata folder (`*.dist-info`, `*.egg-info`) or its `entry_points.txt` cannot be understood,\n"
        "so what the distribution offers is not found, or not all of it. The message names the file and\n"
        "the line. Reinstall the distribution; if that does not help, its author has to mend its\n"
        "pyproject.toml.",
    ),
    "NK031": (
        "a name is offered twice for one point",
        "Two distributions (or one, twice) offer a component of the same name for the same slot or\n"
        "extension point. Nothing is wrong until a plan names it; the plan then has to say whose it\n"
        'means: `use = "distribution:name"`. Or uninstall one of them.',
    ),
    "NK032": (
        "a component is offered for a point that nobody opens",
        "The extension point is neither one of the kernel's nor named by a setting of an installed\n"
        "component, so no plan can use the component. The distribution that opens the point is missing,\n"
        "or the name of the entry-point group is misspelt.",
    ),
    "NK033": (
        "importing a plugin ends the process",
        "The module that holds the component was imported in a process of its own, which died: of a\n"
        "signal, or because the module exits. Often a compiled library does not fit this machine. A run\n"
        "that names the component would die in the same way. Reinstall or remove the distribution.",
    ),
    "NK034": (
        "importing a plugin takes too long",
        "The module that holds the component was imported in a process of its own, which had to be ended\n"
        "after the time limit. Modules with components are meant to be light: the author has to move work\n"
        "and heavy imports into the hook methods. `nlpkernel plugins doctor --limit SECONDS` waits\n"
        "longer.",
    ),
    "NK035": (
        "the module of a component imports something heavy",
        "Listing and checking must not pay for torch, numpy, zmq or cupy, nor fail where they are broken.\n"
        "The author has to import them inside the hook methods, and for annotations under `if\n"
        "TYPE_CHECKING:`.",
    ),
    "NK036": (
        "a distribution that a plugin requires is not installed",
        "The metadata of the plugin require it (`Requires-Dist`). It was removed later, or the plugin was\n"
        "installed without its dependencies. Install it with the command in the message.",
    ),
    "NK037": (
        "a distribution is installed in a release that a plugin does not accept",
        "The metadata of the plugin, or of nlpkernel itself, require another release (`Requires-Dist`).\n"
        "Another installation has changed it. Install a release that fits with the command in the\n"
        "message.",
    ),
    "NK038": (
        "no installed distribution offers this",
        "No component of this name is installed, or none for this point. `nlpkernel plugins` lists what\n"
        "is installed; distributions of plugins are called nlpkernel-plugin-*.",
    ),
    "NK039": (
        "a name means several components",
        "The name is offered for several points, or by several distributions. Say which one you mean,\n"
        "with `--point POINT` or as `distribution:name`.",
    ),
    "NK040": (
        "an entry point for codes, a command or a starter plan does not hold what it should",
        "Entry points in the groups `nlpkernel.codes.v1`, `nlpkernel.command.v1` and `nlpkernel.starter.v1`\n"
        "name a table of error codes, a module with a command, and the text of a plan. The message says\n"
        "what was found instead; the author has to mend it.",
    ),
}
