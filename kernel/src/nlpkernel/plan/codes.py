"""The codes of what can be wrong with reading a plan."""

from __future__ import annotations

SYNTAX = "NK001"
DUPLICATE = "NK002"
UNREADABLE = "NK003"
NOT_UTF8 = "NK004"
FORMAT = "NK005"
CYCLE = "NK006"
OVERRIDE = "NK007"
UNSET = "NK008"
NO_YAML = "NK009"
REFUSED = "NK010"
REFERENCE = "NK011"
EXTENDS = "NK012"
KEY = "NK013"
DEPTH = "NK014"

#: Code to (title, explanation).
CODES: dict[str, tuple[str, str]] = {
    SYNTAX: (
        "syntax error in a plan",
        "The file is not well-formed TOML, JSON or YAML at the place that is named. The message says what was\n"
        "expected there. A TOML plan is read on after a mistake, so that one report holds all of them; what the\n"
        "faulty line was to set is not known, and is not reported as missing beside that.",
    ),
    DUPLICATE: (
        "a key or a table is written twice",
        "A key stands once in its table, and a table has one header. The message names the place of the first one,\n"
        "which is the one that later messages speak of. Remove one of the two. A list of components is written\n"
        "with double brackets, [[monitor]], once for each.",
    ),
    UNREADABLE: (
        "a plan file cannot be read",
        "There is no such file, it is a folder, or the system does not let you read it; the message gives the\n"
        "system's reason. A path in `extends` starts from the folder of the file that it is written in.",
    ),
    NOT_UTF8: (
        "a plan file is not UTF-8",
        "Plans are read as UTF-8, with or without a byte-order mark, whatever the locale is. The place is that of\n"
        "the first byte that does not fit. Save the file as UTF-8 in your editor.",
    ),
    FORMAT: (
        "unknown format of a plan",
        "The format follows from the end of the file's name: .toml is TOML, .yaml and .yml are YAML 1.2, .json is\n"
        "JSON. Rename the file.",
    ),
    CYCLE: (
        "plans extend each other in a circle",
        "Following `extends` from file to file leads back to where it began. The message names the chain; remove\n"
        "`extends` from one of its files.",
    ),
    OVERRIDE: (
        "an override cannot be applied",
        "An override is written key.path=value. Entries of a list are counted from 0, monitor[0].use=console, and\n"
        "monitor[+].use=jsonl appends one. The path may create tables, and may not lead through a value that is\n"
        "no table. Quote the whole override for your shell if it holds brackets, braces, spaces or quotes.",
    ),
    UNSET: (
        "an environment variable is not set",
        'The plan refers to it by "${NAME}". Set it before the command, or write "${NAME:-fallback}", whose\n'
        "fallback also stands for a variable that is set to nothing. A literal ${ is written $${.",
    ),
    NO_YAML: (
        "YAML support is not installed",
        "Plans in YAML need the package ruamel.yaml, which comes with pip install 'nlpkernel[yaml]'.\n"
        "Plans in TOML and JSON need nothing beside the kernel.",
    ),
    REFUSED: (
        "a feature of YAML that plans do not use",
        "Plans take one YAML 1.2 document of tables, lists, texts, numbers, true, false and null. Tags beyond\n"
        "those of the core schema, several documents, merge keys (<<) and aliases that grow without bound are\n"
        "refused. Share settings between plans with `extends`.",
    ),
    REFERENCE: (
        "a malformed environment reference",
        'A reference is written "${NAME}" or "${NAME:-fallback}". A name consists of letters, digits and _ and does\n'
        "not begin with a digit; a fallback holds no further reference. A literal ${ is written $${.",
    ),
    EXTENDS: (
        "`extends` is no path",
        '`extends` holds the path of another plan, or a list of paths: extends = "base.toml". With a list, later\n'
        "files have precedence over earlier ones.",
    ),
    KEY: (
        "a key is not text",
        "Keys of a plan are names of settings, so they are text. YAML reads a bare 1, true or null as something\n"
        "else; put it in quotes where it is meant as a name.",
    ),
    DEPTH: (
        "a plan is nested too deeply",
        "Tables and lists may stand in each other 100 levels deep, and a dotted key counts a level for each part.\n"
        "No component needs more than a handful; a file that a program wrote may hold itself by mistake.",
    ),
}
