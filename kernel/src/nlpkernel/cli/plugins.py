"""`nlpkernel plugins`: what is installed, what one component takes, why a plan imports it, what is wrong, and what the
plugins of a plan do (`cli.watching`).

The list comes from metadata alone, so it works however broken a plugin is. Everything that the other
sub-commands need is imported by them: the list has a budget of 60 ms of CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nlpkernel.cli import watching
from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel.plugins.scan import SERVICES, Offer, scan_all
from nlpkernel.plugins.suggest import hint

if TYPE_CHECKING:
    from nlpkernel.errors import NlpkernelError
    from nlpkernel.plugins.inspect import Description
    from nlpkernel.plugins.why import Use

HELP = "list installed plugins, show one, say why a plan uses it, find what is wrong, watch those of a plan"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands; without one, the list is shown."""
    _list_arguments(parser, {"json": False, "point": None})
    # With `prog` given, argparse makes no help formatter, for which it would import shutil and all of its archivers.
    commands = parser.add_subparsers(
        dest="plugins_command", metavar="COMMAND", title="commands", prog=parser.prog
    )
    listing = commands.add_parser("list", help="what is installed, from metadata alone; imports no plugin")
    _list_arguments(listing, {})
    show = commands.add_parser("show", help="settings, presets and hooks of one component")
    show.add_argument("name", metavar="NAME", help="a name, distribution:name, or ./file.py:Class")
    _list_arguments(show, {})
    why = commands.add_parser("why", help="where a plan names a component, and what the name means")
    why.add_argument("name", metavar="NAME", help="a name, distribution:name, or ./file.py:Class")
    why.add_argument("--plan", required=True, metavar="PLAN", help="the plan's file")
    _json_argument(why, {})
    doctor = commands.add_parser("doctor", help="everything that is wrong; exit code 1 if anything is")
    doctor.add_argument(
        "--limit", type=_seconds, default=30.0, metavar="SECONDS", help="longest import of one module (30)"
    )
    _json_argument(doctor, {})
    watching.commands(commands)


def execute(args: argparse.Namespace) -> int:
    """Carry out the sub-command. Raise UsageError or PluginError."""
    return _COMMANDS.get(args.plugins_command, _list)(args)


def _list_arguments(parser: argparse.ArgumentParser, defaults: dict[str, Any]) -> None:
    _json_argument(parser, defaults)
    default = defaults.get("point", argparse.SUPPRESS)
    parser.add_argument("--point", metavar="POINT", default=default, help="only this slot or extension point")


def _json_argument(parser: argparse.ArgumentParser, defaults: dict[str, Any]) -> None:
    # Suppressed in the sub-commands, whose default would else undo `plugins --json list`.
    default = defaults.get("json", argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", default=default, help="write JSON")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return value


# -- list ------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    found = scan_all()
    offers = [offer for offer in found.offers if _wanted(offer, args.point)]
    if args.point and not offers:
        _know_point(args.point, found.offers)
    if args.json:
        write_json(
            {
                "offers": [_plain(offer) for offer in offers],
                "broken": [each._asdict() for each in found.broken],
            }
        )
        return 0
    if offers:
        rows = [(_point(offer), offer.name, offer.distribution, offer.release) for offer in offers]
        table([("point", "name", "distribution", "release"), *rows], head=True)
        distributions = len({offer.distribution for offer in offers})
        say(
            f"\n{count(len(offers), 'component')} of {count(distributions, 'distribution')}, "
            "from their metadata; none was imported"
        )
    else:
        say("no component is installed" + (f" for {args.point}" if args.point else ""))
    if found.broken:
        say(f"broken metadata: {len(found.broken)}; see `nlpkernel plugins doctor`")
    return 0


def _wanted(offer: Offer, point: str | None) -> bool:
    return offer.point not in SERVICES if point is None else offer.point == point


def _point(offer: Offer) -> str:
    return offer.point if offer.version == 1 else f"{offer.point} v{offer.version}"


def _plain(offer: Offer) -> dict[str, Any]:
    return offer._asdict()


def _know_point(point: str, offers: Iterable[Offer]) -> None:
    """Raise UsageError where neither the kernel nor an installed distribution knows this point."""
    from nlpkernel.hookspecs import POINTS

    known = {*POINTS, *SERVICES, *(offer.point for offer in offers)}
    if point not in known:
        raise _usage("NK038", f"there is no slot or extension point {point!r}", hint(point, known))


# -- show ------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    from pathlib import Path

    from nlpkernel.plugins.catalog import Catalog
    from nlpkernel.plugins.inspect import describe, describe_found, load

    if ".py:" in args.name:
        description = describe_found(load(Catalog([]), args.point or "", args.name, Path.cwd()))
    else:
        description = describe(_one(args.name, args.point, scan_all().offers))
    if args.json:
        import attrs

        write_json(attrs.asdict(description))
    else:
        _tell(description)
    return 0


def _one(name: str, point: str | None, offers: Sequence[Offer]) -> Offer:
    """The offer that `name` or `distribution:name` means. Raise UsageError where that is none, or several."""
    same = _named(name, point, offers)
    if not same:
        if point is not None:
            _know_point(point, offers)
        known = {offer.name for offer in offers if _wanted(offer, point)}
        what = f"no installed distribution offers {name!r}" + (f" for {point!r}" if point else "")
        raise _usage("NK038", what, hint(name.rpartition(":")[2], known))
    if len(same) > 1:
        choices = ", ".join(
            f"{offer.distribution}:{offer.name} --point {offer.point} (v{offer.version})" for offer in same
        )
        raise _usage("NK039", f"{name!r} may be any of several components", f"there are: {choices}")
    return same[0]


def _named(name: str, point: str | None, offers: Iterable[Offer]) -> list[Offer]:
    distribution, _, bare = name.rpartition(":")
    same = [
        offer
        for offer in offers
        if offer.name == bare
        and _wanted(offer, point)
        and offer.distribution == (distribution or offer.distribution)
    ]
    # A distribution may serve several kernels; the highest version of a contract is described.
    newest = {
        (offer.point, offer.distribution): offer for offer in sorted(same, key=lambda each: each.version)
    }
    return sorted(newest.values())


def _tell(description: Description) -> None:
    say(f"{description.name}" + (f", for {description.point}" if description.point else ""))
    say(f"  {description.distribution} {description.release}, {description.target}")
    if description.doc:
        say("\n" + description.doc)
    say("\nsettings" if description.settings else "\nno settings")
    rows = [("  name", "type", "range", "default", "what it is")]
    for each in description.settings:
        default = "required" if each.default is None else each.default
        rows.append((f"  {each.name}", each.type, each.range, default, each.help))
    if len(rows) > 1:
        # No setting of a component may have a range.
        filled = [column for column in zip(*rows, strict=True) if any(column[1:])]
        table(list(zip(*filled, strict=True)), head=True)
    if description.presets:
        from nlpkernel.plugins.inspect import plan_words

        say("\npresets")
        table([(f"  {name}", plan_words(values)) for name, values in description.presets.items()])
    say("\nhooks" if description.hooks else "\nno hooks")
    table([(f"  {hook.name}", hook.kind, hook.help) for hook in description.hooks])
    if description.problems:
        say("\nproblems")
        for problem in description.problems:
            say(f"  {problem}")


# -- why -------------------------------------------------------------------------------------------


def _why(args: argparse.Namespace) -> int:
    from pathlib import Path

    from nlpkernel.plugins.why import uses_of

    offers = scan_all().offers
    found = uses_of(Path(args.plan), offers)
    uses = [use for use in found.uses if _means(use, args.name)]
    local = ".py:" in args.name
    if not uses and not local and not _named(args.name, None, offers):
        known = {offer.name for offer in offers if _wanted(offer, None)} | {use.name for use in found.uses}
        what = f"{args.plan} does not name {args.name!r}, and no installed distribution offers it"
        raise _usage("NK038", what, hint(args.name.rpartition(":")[2], known))
    if args.json:
        write_json(
            {
                "name": args.name,
                "plan": args.plan,
                "checked": not found.problems,
                "uses": [_use_plain(use, offers) for use in uses],
            }
        )
        return 0
    for use in uses:
        _tell_use(use, offers)
    if not uses:
        say(f"{args.name} is not named by {args.plan}: it is never imported")
    if found.problems:
        say(
            f"the plan has {count(len(found.problems), 'problem')}, so components that it gets by default "
            f"are not looked at; see `nlpkernel check {args.plan}`"
        )
    return 0


def _means(use: Use, name: str) -> bool:
    """Whether a `use` of the plan is what the user asks about."""
    if use.local or ".py:" in name:
        return use.local and os.path.normpath(use.use) == os.path.normpath(name)
    distribution, _, bare = name.rpartition(":")
    if use.name != bare:
        return False
    return not distribution or distribution in (use.use.rpartition(":")[0], *_owners(use))


def _owners(use: Use) -> list[str]:
    return sorted({offer.distribution for offer in use.offers})


def _others(use: Use, offers: Sequence[Offer]) -> list[Offer]:
    """Who else offers the name for the same point."""
    if use.local:
        return []
    return [
        offer
        for offer in offers
        if offer.name == use.name and _wanted(offer, use.point) and offer not in use.offers
    ]


def _use_plain(use: Use, offers: Sequence[Offer]) -> dict[str, Any]:
    return {
        "address": use.address,
        "use": use.use,
        "point": use.point,
        "place": {"file": use.place.file, "line": use.place.line, "column": use.place.column},
        "origin": use.origin,
        "local": use.local,
        "offers": [_plain(offer) for offer in use.offers],
        "others": [_plain(offer) for offer in _others(use, offers)],
    }


def _tell_use(use: Use, offers: Sequence[Offer]) -> None:
    if use.default:
        say(f"{use.use} is used at {use.address}: {use.origin or 'default'}, the plan writes nothing there")
    else:
        say(f"{use.place}: {use.use} is used at {use.address}")
    if use.local:
        say("  it is a component of a local file, imported from there; no distribution is asked")
    elif not use.offers:
        tip = hint(use.name, {offer.name for offer in offers if _wanted(offer, use.point)})
        say("  no installed distribution offers it" + (f"; {tip}" if tip else ""))
    elif len(_owners(use)) > 1:
        say("  several distributions offer it, so no run starts; write one of these:")
        for owner in _owners(use):
            say(f'    use = "{owner}:{use.name}"')
    else:
        say("  it means:")
        table([_row(offer) for offer in use.offers])
    others = _others(use, offers)
    if others:
        say("  also offered, and not used here, by:")
        table([_row(offer) for offer in others])


def _row(offer: Offer) -> tuple[str, ...]:
    return (f"    {offer.distribution}", offer.release, _point(offer), offer.target)


# -- doctor ----------------------------------------------------------------------------------------


def _doctor(args: argparse.Namespace) -> int:
    import attrs

    from nlpkernel import __version__
    from nlpkernel.plugins.doctor import doctor

    found = scan_all()
    findings = doctor(found, limit=args.limit)
    if args.json:
        write_json({"findings": [attrs.asdict(finding) for finding in findings], "offers": len(found.offers)})
        return 1 if findings else 0
    distributions = len({offer.distribution for offer in found.offers})
    say(
        f"nlpkernel {__version__}, Python {sys.version.split()[0]}: looked at "
        f"{count(len(found.offers), 'entry point')} of {count(distributions, 'distribution')}"
    )
    for finding in findings:
        say(str(finding))
    say(f"{count(len(findings), 'finding')}" if findings else "nothing is wrong")
    return 1 if findings else 0


def _usage(code: str, message: str, tip: str | None) -> NlpkernelError:
    from nlpkernel.errors import UsageError, fail

    return fail(UsageError, code, message, hint=tip)


_COMMANDS = {
    "show": _show,
    "why": _why,
    "doctor": _doctor,
    "order": watching.execute_order,
    "trace": watching.execute_trace,
    "bisect": watching.execute_bisect,
}
