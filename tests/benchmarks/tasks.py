"""Training through a plan against HF Trainer: the same models of transformers, the same texts, the same batches' size.

    OMP_NUM_THREADS=1 python tests/benchmarks/tasks.py [--turns 3] [--steps 120] [--json]

Texts are the functions and classes of the Python standard library, by one BPE tokenizer that is trained before; both
arms tokenize before they train. Tasks: language modelling (gpt2 of 4 layers, width 128, rows of 128 tokens), classes
(bert of 4 layers, width 128, at most 128 tokens, padded to the longest of the batch; which module a text is from) and
masked tokens (the same bert, rows of 128). AdamW, clipping at 1, a learning rate that falls linearly, float32, one
thread, a log line each 50 steps, nothing saved. Each arm is a process; they take turns. Time is that between the
completion of step 20 and of the last, and speed is samples a second of it: both see as many tokens in a sample.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH, WIDTH, FIRST = 16, 128, 20
SIZES = {"hidden": 128, "layers": 4, "heads": 4}
TASKS = ("lm", "classification", "mlm")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--json", action="store_true", help="one object a row")
    parser.add_argument("--arm", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.arm:
        arm, task, folder = args.arm
        print(json.dumps({"ours": ours, "theirs": theirs}[arm](task, Path(folder), args.steps)))
        return
    if not args.json:
        print("$ python", " ".join(sys.argv))
        print(f"{'task':16}{'ours':>10}{'Trainer':>10}  samples a second; ours over theirs")
    with tempfile.TemporaryDirectory() as folder:
        write_texts(Path(folder))
        for task in TASKS:
            speeds: dict[str, list[float]] = {"ours": [], "theirs": []}
            for turn in range(args.turns):
                for arm in sorted(speeds, reverse=bool(turn % 2)):
                    command = [
                        sys.executable,
                        __file__,
                        "--steps",
                        str(args.steps),
                        "--arm",
                        arm,
                        task,
                        folder,
                    ]
                    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    speeds[arm].append(json.loads(out.splitlines()[-1]))
            ratios = [a / b for a, b in zip(speeds["ours"], speeds["theirs"], strict=True)]
            row = {
                "task": task,
                **{arm: statistics.median(each) for arm, each in speeds.items()},
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
            if args.json:
                print(json.dumps(row))
            else:
                spread = f"{row['ratio']:.2f} ({row['least']:.2f} to {row['most']:.2f})"
                print(f"{task:16}{row['ours']:10.1f}{row['theirs']:10.1f}  {spread}")


def write_texts(folder: Path) -> None:
    """The texts with their classes, and a tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    texts: list[tuple[str, str]] = []
    for name in (
        "argparse",
        "ast",
        "asyncio/base_events",
        "decimal",
        "inspect",
        "subprocess",
        "tarfile",
        "typing",
    ):
        path = Path(ast.__file__).parent / f"{name}.py"
        path = path if path.exists() else path.with_name(f"_py{path.name}")
        source = path.read_text(encoding="utf-8")
        kinds = (ast.FunctionDef, ast.ClassDef)
        nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
        texts += ((ast.get_source_segment(source, node) or "", name) for node in nodes)
    lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in texts if len(text) > 40]
    (folder / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=["<|end|>", "[PAD]", "[MASK]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text, _ in texts), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


def config_of(task: str) -> dict[str, Any]:
    """The values of the model's configuration."""
    if task == "lm":
        return {
            "model_type": "gpt2",
            "n_embd": SIZES["hidden"],
            "n_layer": SIZES["layers"],
            "n_head": SIZES["heads"],
            "n_positions": WIDTH + 1,
        }
    return {
        "model_type": "bert",
        "hidden_size": SIZES["hidden"],
        "num_hidden_layers": SIZES["layers"],
        "num_attention_heads": SIZES["heads"],
        "intermediate_size": 4 * SIZES["hidden"],
        "max_position_embeddings": WIDTH + 1,
    }


def ours(task: str, folder: Path, steps: int) -> float:
    """Samples a second through a plan."""
    import nlpkernel
    from nlpkernel.events import StepCompleted

    by_row = task == "classification"
    plan = nlpkernel.Plan.of(
        {
            "name": task,
            "train": {
                "steps": steps,
                "batch": BATCH,
                "clip": 1.0,
                "threads": 1,
                "seed": 1,
                "log": {"every": 50},
            },
            "data": {
                "use": "text",
                "paths": ["texts.jsonl"],
                "fields": {"label": "label"} if by_row else {},
                "pack": "rows" if by_row else "joined",
                "long": "truncate" if by_row else "split",
                "window": WIDTH - (task != "lm"),
                "validation": 0,
                "tokenizer": {
                    "use": "pretrained",
                    "path": "tokenizer.json",
                    "end": "<|end|>",
                    "pad": "[PAD]",
                },
                "task": task,
            },
            "model": {"use": "hf", "config": config_of(task)},
            "optimizer": {"use": "adamw", "lr": 5e-4, "schedule": {"use": "linear", "warmup": 0}},
        },
        base=folder,
    )
    begun = 0.0
    with tempfile.TemporaryDirectory() as runs:
        for event in nlpkernel.train(plan, runs_folder=Path(runs)):
            if isinstance(event, StepCompleted):
                if event.progress.step == FIRST:
                    begun = time.perf_counter()
                ended = time.perf_counter()
    return BATCH * (steps - FIRST) / (ended - begun)


def theirs(task: str, folder: Path, steps: int) -> float:
    """Samples a second through HF Trainer."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        eos_token="<|end|>",
        pad_token="[PAD]",
        mask_token="[MASK]",
    )
    records = [json.loads(line) for line in (folder / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    values = {**config_of(task), "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    labels = sorted({record["label"] for record in records})
    config = transformers.AutoConfig.for_model(values.pop("model_type"), num_labels=len(labels), **values)
    samples: list[dict[str, Any]]
    collator: Any
    if task == "classification":
        ids = tokenizer([record["text"] for record in records], truncation=True, max_length=WIDTH)[
            "input_ids"
        ]
        numbers = [labels.index(record["label"]) for record in records]
        samples = [{"input_ids": each, "label": number} for each, number in zip(ids, numbers, strict=True)]
        model = transformers.AutoModelForSequenceClassification.from_config(config)
        collator = transformers.DataCollatorWithPadding(tokenizer)
    else:
        stream = [
            each for ids in tokenizer([r["text"] + "<|end|>" for r in records])["input_ids"] for each in ids
        ]
        cuts = range(0, len(stream) - WIDTH, WIDTH)
        samples = [{"input_ids": stream[at : at + WIDTH]} for at in cuts]
        kind = transformers.AutoModelForCausalLM if task == "lm" else transformers.AutoModelForMaskedLM
        model = kind.from_config(config)
        collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=task == "mlm")
    times: dict[int, float] = {}

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            times[state.global_step] = time.perf_counter()

    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            output_dir=out,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=5e-4,
            max_grad_norm=1.0,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=1,
        )
        transformers.Trainer(
            model=model, args=arguments, train_dataset=samples, data_collator=collator, callbacks=[Clock()]
        ).train()
    return BATCH * (steps - FIRST) / (times[steps] - times[FIRST])


if __name__ == "__main__":
    main()
