"""The kernel's error codes: what each means and what to do, for `nlpkernel explain`."""

from __future__ import annotations

from nlpkernel.plan.codes import CODES as READING
from nlpkernel.plugins.codes import CODES as PLUGINS
from nlpkernel.supervise.codes import CODES as SUPERVISION

STRUCTURE = {
    "NK101": (
        "no such setting or section",
        """A key in the plan belongs to nothing that would read it. Nothing is ignored: a misspelt key would else
change a run without a word. The message suggests the nearest name; `nlpkernel plugins show NAME` lists
all settings.""",
    ),
    "NK102": (
        "a required setting is missing",
        "The component has no default for it. `nlpkernel plugins show NAME` says what it means.",
    ),
    "NK103": (
        "a value of the wrong kind",
        """Values are not converted: "12" is not 12, 2.9 is not 2, true is not 1. The one exception is that a whole
number may stand where a number is wanted. Write the value as the message says. null means that a setting is left
out, so it cannot stand where leaving it out means something else.""",
    ),
    "NK104": (
        "a value out of range",
        "The message says which values are allowed. NaN and infinities never are.",
    ),
    "NK105": ("a value that is none of the choices", "The setting takes one of the listed values."),
    "NK106": (
        "no installed distribution offers the component",
        """Either the name is misspelt, or its distribution is not installed in this environment. `nlpkernel plugins`
lists what is there. Pip installs more: `pip install nlpkernel-plugin-...`.""",
    ),
    "NK107": (
        "several distributions offer the component",
        'Nobody shadows anybody in silence. Write `use = "distribution:name"` to say whose you mean.',
    ),
    "NK108": (
        "settings that do not go together",
        "Each value is right for itself, and the component says why they cannot stand side by side.",
    ),
    "NK109": (
        "a section is missing",
        """A plan needs [data], [model] and [optimizer]. [communicator] and [precision] may be left out (one process,
float32), and so may [checkpoint] and [[monitor]].""",
    ),
    "NK110": (
        "a secret stands in the plan",
        """Plans are stored with runs, locks and versions. Put the secret into the environment and refer to it:
`token = "${MY_TOKEN}"`. Only the reference is written down, which is why it may hold no fallback.""",
    ),
    "NK111": ("no such preset", "The component has other named sets of defaults; the message lists them."),
    "NK112": (
        "a table does not say which component it configures",
        "Every component's table has a key `use` with the component's name.",
    ),
    "NK113": (
        "a setting does not go with the rest of the plan",
        """The value is right for itself and beside its component's other settings, and another section makes it
impossible: a layout into which the model cannot be cut, say. The message names both.""",
    ),
}

ACTIVATION = {
    "NK050": (
        "a plugin is built for another version of the contract",
        """The number at the end of an entry-point group (`nlpkernel.optimizer.v1`) is the version of the contract that
the plugin was built for. This kernel has another one. Upgrade whichever is older.""",
    ),
    "NK051": (
        "a plugin needs a package that is not installed",
        """The message names the package. It was removed, or the plugin was installed with --no-deps. The run does not
go on without the component.""",
    ),
    "NK052": (
        "a plugin cannot be imported",
        """The message names the error and the line. `nlpkernel plugins doctor` tries every plugin in a process of its
own. The run does not go on without the component.""",
    ),
    "NK053": (
        "no component, or an unsound one",
        """The entry point leads to nothing, or to something that was not made with `@nlpkernel.component`, or one of
its settings has a type that no plan can write. The author has to mend it; an upgrade of the distribution may help.""",
    ),
    "NK054": (
        "no such hook",
        """A method marked with @hookimpl has a name that is no hook, or a hook that is not asked of this kind of
component. It would never be called. See the hooks reference in the documentation.""",
    ),
    "NK055": (
        "no such argument of a hook",
        "A hook method may leave arguments out, and may not have others than the hook's own.",
    ),
    "NK056": (
        "a local component cannot be loaded",
        """`use = "./file.py:Class"` names a file relative to the plan and a class in it that is made with
@component.""",
    ),
    "NK057": (
        "a hook is missing, or not marked",
        """Every slot and extension point has hooks that a component must implement. A method that has the name of a
hook and no @hookimpl above it would never be called.""",
    ),
    "NK058": (
        "an option of pluggy that is not honoured",
        """The kernel asks hooks by their names, in plan order, and walks them itself, so wrappers, tryfirst, trylast,
optionalhook and specname have no meaning here.""",
    ),
    "NK059": (
        "two owners of one hook",
        "Some hooks can be answered by one component only. Take one out of the plan.",
    ),
    "NK060": (
        "a component failed",
        """The message names the component, its distribution, what it was asked, and the error. While a run goes on,
`-v` shows the traceback, and so does the log in the run's folder.""",
    ),
    "NK061": (
        "parameters that the anatomy does not describe",
        "A model, or a transform that adds parameters, says for each what role it has and whether it decays.",
    ),
}

RUNS = {
    "NK301": (
        "the run folder exists",
        """A run never writes over another. Continue it with `nlpkernel resume`, replace it with `--overwrite`, or give
this run another name.""",
    ),
    "NK302": (
        "not a run folder",
        "`--overwrite` replaces run folders only, which have plan.toml and logs/. This one is left alone.",
    ),
    "NK303": (
        "no such run",
        "The path does not name a folder that `nlpkernel run` made (one with plan.toml).",
    ),
    "NK304": (
        "the run keeps no versions",
        "Its plan has no [checkpoint] section, so its weights were never stored.",
    ),
    "NK305": (
        "a folder or file cannot be written",
        "The system does not let the process write there; the message gives its reason. `--runs FOLDER` names\n"
        "another place for runs.",
    ),
    "NK306": (
        "the run has no report",
        "A report is written when a run ends. This one is running, or its process was killed.",
    ),
    "NK307": ("no such error code", "`nlpkernel explain` without a code lists them all."),
    "NK308": (
        "no starter plan",
        "Starter plans come with plugins. `pip install nlpkernel-standard` brings one.",
    ),
    "NK309": (
        "the starter plan cannot be written",
        "The file exists, and `nlpkernel init` writes over nothing unless `--overwrite` is given; or its folder\n"
        "is missing.",
    ),
    "NK310": (
        "the report of a run cannot be read",
        """report.json in the run's folder is not what `nlpkernel run` writes: it was cut short or edited, or another
release of nlpkernel wrote it. The run itself is not touched by that.""",
    ),
    "NK311": (
        "the run is in use",
        """Another process trains in this run's folder, rolls it back or prunes it. Two at once would spoil each other's
versions. The message names the process; the claim ends when that process does, however it ends.""",
    ),
    "NK312": (
        "no lock",
        "`run --locked` needs the file that `nlpkernel lock plan.toml` writes. The message says what is wrong with it.",
    ),
    "NK313": (
        "options that do not go together",
        "One of the options would have no effect beside the other, and none is ignored in silence. Leave out one.",
    ),
    "NK314": (
        "a plan that cannot be proved to resume",
        """`verify-resume` starts, kills and resumes all workers and servers of a plan on this machine, and compares the
numbers with those of an unbroken run. That needs a plan whose unbroken runs are all alike, and all of whose processes
are nlpkernel's and start here. The message says what is otherwise; such a run is resumed by `nlpkernel resume` as any
other.""",
    ),
    "NK315": (
        "the data cannot try a model",
        "`evaluate` and `predict` read samples as the run's data component does, which has to open them for a trained\n"
        "model (the hook `open_unseen`). This one does not; ask its author.",
    ),
    "NK401": (
        "the device cannot be used",
        """torch has no such device here: its build, the driver or the number is another. There is no fall-back to
another device. `device = "auto"` takes what is there and says what it took.""",
    ),
    "NK403": (
        "a policy ended the run as failed",
        """The commonest reason is a loss or gradient that is not finite (`train.on_nan = "stop"`). No update was made
from it: the weights are those of the step before, and they were saved if the plan has a [checkpoint]. The message
names step, rank and samples. Look at these samples, lower the rate, or choose `skip` or `rollback`.""",
    ),
    "NK404": (
        "too many overflows in a row",
        """A loss scale that is too large overflows a few times until it has fallen. Fifty times in a row means that the
gradients themselves are not finite. Look at the samples named, or train in bf16 or fp32.""",
    ),
    "NK405": (
        "nothing to roll back to",
        """Going back needs a version: let [checkpoint] save before the trouble starts. And it needs a window to leave
out: where the same one is asked for again, going back would bring the same end.""",
    ),
    "NK406": (
        "a loss term without a weight",
        """`Task.loss` gave a term that `Task.weights` does not know, so its mean cannot be taken. Both must have the
same names for every window.""",
    ),
    "NK407": (
        "no step can ever happen",
        """There are no samples, or `train.partial = "drop"` leaves out the only batch because it is not full. Make the
batch smaller, or let a partial batch be a step or be carried into the next epoch.""",
    ),
    "NK408": (
        "a plan cannot be tried without one of its observers",
        """`plugins bisect` runs the plan's first steps, as it is and without each observer. The message says how the
run of it ended; a plan that ends after a few steps needs more of them to be measured.""",
    ),
    "NK501": ("no complete version", "The run was ended before its first save was committed."),
    "NK502": (
        "the version does not fit the model",
        """Names or shapes of tensors differ: the version was made by another plan or another release of a plugin.
lock.json in the run's folder says which.""",
    ),
    "NK503": (
        "state of a component is missing or left over",
        """A version holds the state of every component that has one. It is loaded whole or not at all, so a component
that was added to or taken from the plan is refused by name.""",
    ),
    "NK504": (
        "state of a component does not fit",
        """The component itself refused what the version holds for it, and says why. It was made by another release or
with other settings; lock.json in the run's folder names both.""",
    ),
    "NK505": (
        "the run would not go on as it was",
        """A resumed run computes what the unbroken one would have computed. A seed, a batch, the content of the data,
the release or the sources of a plugin, torch or the number of threads that is not as it was when the version was made
breaks that, so each is named and refused. Put it back, or allow it by its name: `--allow train.seed`. A section
(`--allow optimizer`) or a distribution (`--allow` and its name) allows all that it holds. What changes no
number may change freely: the length of the run, the log interval, monitors, the checkpoint.""",
    ),
    "NK506": (
        "not what the lock says",
        """`run --locked` runs exactly what `nlpkernel lock` wrote down: the filled plan, releases and sources of all
plugins, the content of the data, torch, Python, threads and device. Every difference is named, also those that
change no number.""",
    ),
    "NK507": (
        "state of a component does not come back",
        """Before the first version is written, the state of each component that has one is put back to what it was at
the start and forward again. A component whose `state` then gives something else would resume inexactly, so nothing is
saved. Its author has to mend `load_state`: it takes up exactly what `state` gave.""",
    ),
    "NK509": (
        "a run that was to be proved failed",
        """One of the runs that `nlpkernel verify-resume` compares ended with an error of its own, which the message
shows. Run the plan with `nlpkernel run` first.""",
    ),
    "NK508": (
        "the run does not resume bit for bit",
        """`nlpkernel verify-resume` found a loss, a weight or other state that differs between the unbroken run and the
one that was killed and resumed. The table names what differs first. Usual causes: a component that keeps something
without `component_state`, draws from a generator of its own, or depends on the time; or an operation that torch
does not repeat bit for bit on this device.""",
    ),
}

CODES: dict[str, tuple[str, str]] = {**READING, **PLUGINS, **ACTIVATION, **STRUCTURE, **RUNS, **SUPERVISION}
