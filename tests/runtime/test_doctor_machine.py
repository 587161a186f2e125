"""The report of `graphcore doctor` on machines: this one, an ARM, a Mac, and one without information."""

from __future__ import annotations

import os
import platform

import pytest

from graphcore.cli.commands.doctor import text
from graphcore.runtime.doctor import machine, report

X86 = """processor	: 0
model name	: Fast
physical id	: 0
core id		: 0
flags		: fpu avx2 avx512f avx512_vnni

processor	: 1
physical id	: 0
core id		: 0
flags		: fpu avx2 avx512f avx512_vnni
"""
ARM = """processor	: 0
BogoMIPS	: 50.00
Features	: fp asimd asimddp i8mm
CPU implementer	: 0x41
"""
MAC = """hw.physicalcpu: 8
hw.logicalcpu: 8
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 0
machdep.cpu.brand_string: Apple M1
"""
INTEL_MAC = """hw.physicalcpu: 4
machdep.cpu.brand_string: Intel
machdep.cpu.features: FPU SSE4.1 AVX1.0
machdep.cpu.leaf7_features: AVX2 AVX512F
"""


def test_instruction_sets_are_read_of_what_systems_tell() -> None:
    x86 = machine.by_cpuinfo(X86)
    assert (x86.name, x86.cores) == ("Fast", 1)
    sets = machine.instructions("x86_64", x86.flags)
    present = {name for name, has in sets.items() if has}
    assert present == {"AVX2", "AVX-512", "AVX512-VNNI"}
    assert {*sets} - present == {"AVX-VNNI", "AVX512-BF16", "AMX"}
    arm = machine.by_cpuinfo(ARM)
    assert (arm.name, arm.cores) == ("", None)
    assert machine.instructions("aarch64", arm.flags) == {"dotprod": True, "i8mm": True, "sve": False}
    mac = machine.by_sysctl(MAC)
    assert (mac.name, mac.cores) == ("Apple M1", 8)
    assert machine.instructions("arm64", mac.flags) == {"dotprod": True, "i8mm": False, "sve": False}
    intel = machine.instructions("x86_64", machine.by_sysctl(INTEL_MAC).flags)
    assert (intel["AVX2"], intel["AVX-512"], intel["AMX"]) == (True, True, False)
    assert machine.instructions("AMD64", None) == dict.fromkeys(machine.INSTRUCTIONS["x86"])
    assert machine.instructions("riscv64", frozenset()) == {}
    assert machine.by_cpuinfo("") == machine.Processor()
    assert machine.by_sysctl("") == machine.Processor()


def test_doctor_says_unknown_on_a_machine_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: None)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "sparc")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    result = report()
    assert result.runs
    rows = {line.strip().partition("  ")[0]: line for line in text(result)}
    for name in ("processor", "cores", "this process", "instructions"):
        assert "unknown" in rows[name], name
    assert "none that sessions can use" in rows["large pages"]


def test_doctor_looks_at_an_arm_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"/proc/cpuinfo": ARM, "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}
    monkeypatch.setattr(machine, "_read", content.get)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    result = report().machine
    assert result is not None
    assert result.instructions == {"dotprod": True, "i8mm": True, "sve": False}
    assert (result.huge_pages, result.gathers) == ("never", False)


@pytest.mark.parametrize(("flags", "recommends"), [("", False), (" avx512_bf16", True)])
def test_doctor_recommends_openvino_where_the_processor_multiplies_bfloat16(
    monkeypatch: pytest.MonkeyPatch, flags: str, recommends: bool
) -> None:
    monkeypatch.setattr(machine, "_read", {"/proc/cpuinfo": X86.replace("avx512f", f"avx512f{flags}")}.get)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    notes = [one for one in report().findings if one.subject == "bfloat16"]
    assert bool(notes) == recommends
    assert all('InferenceSession("openvino", precision="fast")' in note.help for note in notes)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"/proc/self/cgroup": "0::/a/b", "/sys/fs/cgroup/a/b/cpu.max": "max 100000"}, None),
        ({"/proc/self/cgroup": "0::/a/b", "/sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5),
        ({"/proc/self/cgroup": "0::/", "/sys/fs/cgroup/cpu.max": "400000 100000"}, 4.0),
        (
            {
                "/proc/self/cgroup": "2:cpuacct:/x\n1:cpu,cpuset:/x",
                "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000",
                "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
    ],
)
def test_limit_of_a_cgroup_is_that_of_the_strictest(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], limit: float | None
) -> None:
    monkeypatch.setattr(machine, "_read", files.get)
    assert machine.cpu_limit() == limit


def test_doctor_notes_a_limit_that_onnxruntime_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_limit", lambda: 0.5)
    (note,) = [one for one in report().findings if one.subject == "cores"]
    assert "the cgroup allows 0.5 cores" in note.text
    assert "intra_op_num_threads=1" in note.help
