"""Devices that onnxruntime reports: choose the providers of sessions by them, and register other providers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime

from graphcore.errors import GraphError, RunError
from graphcore.support.escaping import choices

_CPU = "CPUExecutionProvider"

POLICIES: Mapping[str, tuple[str, str]] = {
    "default": ("DEFAULT", "CPU"), "prefer_cpu": ("PREFER_CPU", "CPU"), "prefer_gpu": ("PREFER_GPU", "GPU"),
    "prefer_npu": ("PREFER_NPU", "NPU"), "max_performance": ("MAX_PERFORMANCE", "GPU"),
    "max_efficiency": ("MAX_EFFICIENCY", "NPU"), "min_power": ("MIN_OVERALL_POWER", "NPU"),
}  # fmt: skip
"""Policies by name: onnxruntime's name (seen in 1.24.4 to 1.32.0), and the hardware that it prefers by its source."""

_SEEN_FROM = "1.24.4"
"""The oldest release in which the interface was seen."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices of sessions. policy: onnxruntime's, by which it chooses them itself; None for listed devices."""

    devices: tuple[Any, ...]
    policy: Any = None

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers of the devices, in order."""
        return tuple(dict.fromkeys(device.ep_name for device in self.devices))

    def configure(self, options: onnxruntime.SessionOptions, by_provider: Mapping[str, Mapping[str, str]]) -> None:
        """Set the devices, and the options of their providers, in the options of a session."""
        if self.policy is not None:
            options.set_provider_selection_policy(self.policy)
        for provider in self.providers:
            entries = by_provider.get(provider, {})
            if self.policy is None:
                options.add_provider_for_devices([d for d in self.devices if d.ep_name == provider], entries)
                continue
            for name, value in entries.items():
                options.add_session_config_entry(f"ep.{provider.lower()}.{name}", value)


def available() -> list[Any]:
    """Return the devices that onnxruntime reports; none if the release does not report devices."""
    reported = getattr(onnxruntime, "get_ep_devices", None)
    return [] if reported is None else list(reported())


def select(devices: str | Sequence[Any]) -> Selection:
    """Return the selection of a policy's name or of a list of devices.

    Raises `GraphError` for another value, and `RunError` if the release or the machine has no such devices.
    """
    if isinstance(devices, str) and devices not in POLICIES:
        raise GraphError(
            f"InferenceSession: there is no device policy {devices!r:.80}",
            help=choices(devices, POLICIES, cutoff=0.6),
        )
    if not available():
        raise RunError(
            f"InferenceSession: devices: onnxruntime {onnxruntime.__version__} reports no devices",
            help=f"install onnxruntime {_SEEN_FROM} or newer, or give a provider by its name",
        )
    if isinstance(devices, str):
        policy, preferred = POLICIES[devices]
        return Selection(_predicted(preferred), getattr(onnxruntime.OrtExecutionProviderDevicePolicy, policy))
    listed = devices if isinstance(devices, (list, tuple)) else ()
    if not listed or not all(isinstance(device, onnxruntime.OrtEpDevice) for device in listed):
        raise GraphError(
            f"InferenceSession: devices must be a policy or a list of OrtEpDevice, got {devices!r:.80}",
            help=f"give onnxruntime.get_ep_devices() or a part of it, or one of {', '.join(POLICIES)}",
        )
    return Selection(tuple(dict.fromkeys(listed)))


def _predicted(preferred: str) -> tuple[Any, ...]:
    """Return the devices that a policy chooses: the first of the preferred type, the first CPU, the CPU provider."""

    def rank(device: Any) -> tuple[bool, ...]:
        is_discrete = device.device.metadata.get("Discrete") == "1"
        return not is_discrete, device.device.vendor != device.ep_vendor, device.ep_name == _CPU

    ordered = sorted(sorted(available(), key=lambda device: str(device.ep_name)), key=rank)
    first = [device for device in ordered if device.device.type.name == preferred]
    cpus = [device for device in ordered if device.device.type.name == "CPU"]
    return tuple(dict.fromkeys([*first[:1], *cpus[:1], *(device for device in cpus if device.ep_name == _CPU)]))


def register_provider(name: str, path: str | os.PathLike[str]) -> None:
    """Register a shared library with an execution provider, whose devices `InferenceSession(devices=...)` can use.

    The library runs with all your rights, in this process, until it ends.

    Args:
        name: A name for the library, which is not registered yet.
        path: The shared library, which exports onnxruntime's `CreateEpFactories`.

    Raises:
        RunError: If the file is missing or not such a library, or the name is registered.

    Source: onnxruntime.register_execution_provider_library.
    """
    is_named = isinstance(name, str) and name != ""
    if not is_named or not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
        problem = f"{path!r:.200} is not a file" if is_named else f"{name!r:.80} is not a name"
        raise RunError(f"register_provider: {problem}", help="give a name and the path of a provider's shared library")
    library = os.path.realpath(os.fsdecode(os.fspath(path)))
    try:
        onnxruntime.register_execution_provider_library(name, library)
    except Exception as error:
        raise RunError(
            f"register_provider: onnxruntime cannot register {library} as {name!r:.80}: {str(error).strip():.400}",
            help=f"give a new name and a library of this machine for onnxruntime {_SEEN_FROM} or newer",
        ) from error
