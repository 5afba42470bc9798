"""What a device can compute, in torch's own words, and what `auto` makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch

from nlpkernel.errors import TrainingError, fail


@attrs.frozen(kw_only=True)
class Hardware:
    """One device.

    kind: torch's device type. name: as a person knows it. formats: the precisions that work on it. fast: those of them
    that are known to be no slower than fp32. known: whether anything is known of this kind of device.
    """

    kind: str
    name: str
    formats: frozenset[str] = frozenset({"fp32"})
    fast: frozenset[str] = frozenset({"fp32"})
    known: bool = True


def probe(device: torch.device) -> Hardware:
    """Ask torch what a device can do."""
    kind = device.type
    if kind == "cpu":
        return cpu(torch.cpu.get_capabilities())
    if kind == "cuda":
        with torch.cuda.device(device):
            formats = {"fp32", "fp16"}
            if torch.cuda.is_bf16_supported(including_emulation=False):
                formats.add("bf16")
            if torch.cuda.is_tf32_supported():
                formats.add("tf32")
            return _accelerator(kind, torch.cuda.get_device_name(device), formats)
    if kind == "mps":
        formats = {"fp32", "fp16"} | ({"bf16"} if torch.backends.mps.is_macos_or_newer(14, 0) else set())
        return _accelerator(kind, torch.backends.mps.get_name(), formats)
    if kind == "xpu":
        formats = {"fp32", "fp16"} | ({"bf16"} if torch.xpu.is_bf16_supported() else set())
        return _accelerator(kind, torch.xpu.get_device_name(device), formats)
    return Hardware(kind=kind, name=str(device), known=False)


def cpu(capabilities: Mapping[str, Any]) -> Hardware:
    """A CPU from torch's table of its instructions. torch computes in all formats on any CPU.

    bf16 is fast with AMX only: by the instructions of avx512_bf16 it was slower than fp32. See the README.
    """
    fast = {"fp32", "bf16"} if capabilities.get("amx_bf16") else {"fp32"}
    name = str(capabilities.get("cpu_name") or capabilities.get("architecture") or "CPU")
    return Hardware(kind="cpu", name=name, formats=frozenset({"fp32", "bf16", "fp16"}), fast=frozenset(fast))


def _accelerator(kind: str, name: str, formats: set[str]) -> Hardware:
    return Hardware(kind=kind, name=name, formats=frozenset(formats), fast=frozenset(formats))


def choose(hardware: Hardware) -> tuple[str, str]:
    """The precision that `auto` picks, and the reason as a clause.

    Raise TrainingError PRC002 for a device of which nothing is known.
    """
    if not hardware.known:
        raise fail(
            TrainingError,
            "PRC002",
            f"auto does not know the device {hardware.name}",
            hint='name a precision: use = "fp32" works wherever torch does',
        )
    if hardware.kind == "cpu":
        if "bf16" in hardware.fast:
            return "bf16", f"the CPU ({hardware.name}) multiplies bfloat16 matrices by AMX"
        return "fp32", f"without AMX the CPU ({hardware.name}) is not faster in shorter formats"
    if hardware.kind == "mps":
        return "fp32", "shorter formats were not measured on this kind of device"
    if "bf16" in hardware.formats:
        return "bf16", f"{hardware.name} computes in bfloat16"
    if hardware.kind == "cuda":
        return "fp16", f"{hardware.name} does not compute in bfloat16"
    return "fp32", f"{hardware.name} does not compute in bfloat16"


def require(hardware: Hardware, name: str) -> None:
    """Raise TrainingError PRC001 where a device cannot compute in a format."""
    if name in hardware.formats:
        return
    able = ", ".join(sorted(hardware.formats))
    needs = "; tf32 is a format of CUDA devices of compute capability 8.0 or later" if name == "tf32" else ""
    raise fail(
        TrainingError,
        "PRC001",
        f"the device {hardware.name} ({hardware.kind}) cannot compute in {name}{needs}",
        hint=f"it can compute in {able}",
    )
