"""`nlpkernel completion`: shell completion for commands, plans and runs."""

from __future__ import annotations

import argparse

from nlpkernel.cli import COMMANDS
from nlpkernel.cli.output import say

HELP = 'Print shell completion; put `eval "$(nlpkernel completion bash)"` into your shell\'s start-up file.'

_BASH = """\
_nlpkernel() {
    local word="${COMP_WORDS[COMP_CWORD]}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$word"))
    elif [ "${COMP_WORDS[1]}" = resume ] || [ "${COMP_WORDS[1]}" = report ] || [ "${COMP_WORDS[1]}" = generate ]; then
        COMPREPLY=($(compgen -d -- "${word:-runs/}"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _nlpkernel nlpkernel"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("shell", choices=("bash", "zsh"))


def execute(args: argparse.Namespace) -> int:
    """Print the script; zsh reads bash's through its own emulation."""
    from nlpkernel.plugins.scan import scan

    names = [*COMMANDS, *(offer.name for offer in scan() if offer.point == "command")]
    script = _BASH.replace("@COMMANDS@", " ".join(names))
    if args.shell == "zsh":
        script = "autoload -U +X bashcompinit && bashcompinit\n" + script
    say(script)
    return 0
