"""The tutorial loop of other trainers, for `overhead.py --peers`: main-thread CPU us a step, one micro-batch.

Each peer trains the same module on the same batches with torch's fused AdamW and clipping, its loggers, bars and
checkpoints off: what is left is what it needs for a step, with the DataLoader that hands the batches on (HF Trainer
collates them from rows; it takes no other). A call runs some steps to warm up, then the steps that count.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

#: Steps of each call before the clock starts.
WARM = 20

Loss = Callable[[Tensor, Tensor], Tensor]
#: Steps to count, and an empty folder, to CPU us a step.
Peer = Callable[[int, Path], float]


class Laid(Dataset[Mapping[str, Tensor]]):
    """The batches, over and over, so that a loader has nothing to do but hand them on."""

    def __init__(self, batches: list[dict[str, Tensor]], length: int) -> None:
        self._batches, self._length = batches, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Mapping[str, Tensor]:
        return self._batches[index % len(self._batches)]


class Clock:
    """CPU time of this thread from the end of the warm steps to the last."""

    def __init__(self, steps: int) -> None:
        self._steps, self._seen, self._start, self.us = steps, 0, 0.0, 0.0

    def step(self) -> None:
        """A step ended."""
        self._seen += 1
        if self._seen == WARM:
            self._start = time.thread_time()
        elif self._seen == WARM + self._steps:
            self.us = 1e6 * (time.thread_time() - self._start) / self._steps


def peers(
    network: Callable[[], nn.Module], batches: list[dict[str, Tensor]], rate: float, clip: float
) -> dict[str, Peer]:
    """The peers by name. `network` gives a module whose output has `logits`."""
    warnings.filterwarnings("ignore")
    for name in ("lightning", "lightning.pytorch", "lightning.fabric", "accelerate", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)

    def loss_of(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        return ((model(batch["x"]).logits[:, 0] - batch["y"]) ** 2).mean()

    def adam(model: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(model.parameters(), lr=rate, fused=True)

    def loader(steps: int) -> DataLoader[Any]:
        return DataLoader(Laid(batches, WARM + steps), batch_size=None)

    def by_hand(steps: int, batch: Iterator[Any], step: Callable[[Any], None]) -> float:
        clock = Clock(steps)
        for each in batch:
            step(each)
            clock.step()
        return clock.us

    def fabric(steps: int, folder: Path) -> float:
        from lightning.fabric import Fabric

        made = Fabric(accelerator="cpu", devices=1)
        model = network()
        wrapped, optimizer = made.setup(model, adam(model))

        def step(batch: Any) -> None:
            made.backward(loss_of(wrapped, batch))
            made.clip_gradients(wrapped, optimizer, max_norm=clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        return by_hand(steps, iter(made.setup_dataloaders(loader(steps))), step)

    def accelerate(steps: int, folder: Path) -> float:
        from accelerate import Accelerator

        made = Accelerator(cpu=True)
        model = network()
        wrapped, optimizer, data = made.prepare(model, adam(model), loader(steps))

        def step(batch: Any) -> None:
            with made.accumulate(wrapped):
                made.backward(loss_of(wrapped, batch))
                made.clip_grad_norm_(wrapped.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        return by_hand(steps, iter(data), step)

    def lightning(steps: int, folder: Path) -> float:
        import lightning as L

        clock = Clock(steps)

        class Module(L.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = network()

            def training_step(self, batch: Any, index: int) -> Tensor:
                return loss_of(self.network, batch)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return adam(self.network)

            def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
                clock.step()

        L.Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=WARM + steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_algorithm="norm",
            gradient_clip_val=clip,
            default_root_dir=folder,
        ).fit(Module(), loader(steps))
        return clock.us

    def trainer(steps: int, folder: Path) -> float:
        from transformers import Trainer, TrainerCallback, TrainingArguments

        clock = Clock(steps)

        class Wrapped(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = network()

            def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
                return {"loss": loss_of(self.network, {"x": x, "y": labels})}

        class Timer(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                clock.step()

        rows = [
            {"x": x, "labels": y}
            for batch in (batches[index % len(batches)] for index in range(WARM + steps))
            for x, y in zip(batch["x"], batch["y"], strict=True)
        ]
        arguments = TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            max_steps=WARM + steps,
            per_device_train_batch_size=len(batches[0]["x"]),
            learning_rate=rate,
            lr_scheduler_type="constant",
            max_grad_norm=clip,
            optim="adamw_torch_fused",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        Trainer(model=Wrapped(), args=arguments, train_dataset=rows, callbacks=[Timer()]).train()  # type: ignore[arg-type]
        return clock.us

    return {"Fabric": fabric, "Accelerate": accelerate, "HF Trainer": trainer, "Lightning": lightning}
