# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers and tables of docs/results/gpu.md."""

import raw
from values import VALUES, number, table, value


def on_h100(kernel):
    return next(ratio for name, _, _, ratio, *_ in raw.gpu_kernels() if name == kernel)


@value
def gpu_kernels():
    lines = [[name.replace("copy", "**copy**") if name == "copy" else f"`{name}`" if " " not in name else name,
              time, rate, f"{ratio} ({low} to {high})", target]
             for name, time, rate, ratio, low, high, target in raw.gpu_kernels()]
    return table(["kernel", "ms", "GB/s", "of the copy", "target"], lines)


@value
def gpu_libraries():
    lines = [[name, time, kernel, f"{ratio} ({low} to {high})", target]
             for name, time, ratio, low, high, target, kernel in raw.gpu_libraries()]
    return table(["Thrust or CUB", "ms", "spar's kernel", "time / that of the kernel", "target, at least"], lines)


@value
def gpu_count():
    middle, least, most = raw.gpu_count()
    return f"{middle} ({least} to {most})"


@value
def gpu_step():
    head = ["", "ms a step", "ms of kernels, all ranks", "kernels / least bytes", "launches", "copies", "host waits"]
    return table(head, [[name, *numbers] for name, numbers in raw.gpu_steps().items()])


@value
def gpu_step_ratio():
    steps = raw.gpu_steps()
    return number(float(steps["Ok-Topk"][0]) / float(steps["ring"][0]))


@value
def gpu_systems():
    lines = []
    for device, host in (("1 --memory device", "1 --in-place"),
                         ("0.01 --memory device", "0.01 --input dense --in-place")):
        on_host = raw.gpu_systems(f"spar_perf --density {host}")
        for system, (memory, time, low, high) in raw.gpu_systems(f"spar_perf --density {device}").items():
            lines.append([f"`{system}`", memory, f"{time} ({low} to {high})", on_host[system][1]])
    return table(["system", "works on", "values in device memory", "values on the host"], lines)


def ms_on_h100(kernel):
    return next(float(ms) for name, ms, *_ in raw.gpu_kernels() if name == kernel)


def floats_on_h100(kernel):
    """TB of floats a second, in vectors of 2^28 values."""
    return number(4 * 2**28 / ms_on_h100(kernel) / 1e9)


@value
def gpu_select_faster():
    faster = next(ratio for name, _, ratio, *_ in raw.gpu_libraries() if name == "DeviceSelect")
    return number(1 / float(faster))


VALUES |= {
    "gpu_select": lambda: on_h100("take_at_least, 1 %"),
    "gpu_topk_faster":
        lambda: f"{float(next(ratio for name, _, ratio, *_ in raw.gpu_libraries() if name == 'DeviceTopK')):.1f}",
    "gpu_topk_to_take": lambda: number(ms_on_h100("exact top-k, 1 %") / ms_on_h100("take_at_least, 1 %")),
    "gpu_zfp_encode": lambda: floats_on_h100("zfp, 8 bits: encode"),
    "gpu_zfp_decode": lambda: floats_on_h100("zfp, 8 bits: decode"),
}
