#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/gpu on stand-ins for nvidia-smi and the compilers, whose programs sleep or fail: its exit status, that one
failed part stops no other, that the whole call ends in time, and that it names what it has not done; and that it
runs programs which another machine has compiled from the same sources."""

import pathlib
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMI = """#!/bin/sh
[ -z "$NO_GPU" ] || exit 9
[ "$1" = -L ] || echo 9.0
"""
# The output of a compiler: a program that does what the variable RUNS says about its name.
COMPILER = """#!/bin/bash
case " $* " in *" $FAILS "*) echo "error: $FAILS" >&2; exit 1 ;; esac
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
[ -z "$out" ] && { echo release 13.0; echo built; exit; }
does=$(grep -s "^$(basename "$out") " <<<"$RUNS" | cut -d' ' -f2-)
printf '#!/bin/sh\\necho "ran $(basename %s) $*"\\n%s' "$out" "$does" >"$out"
chmod +x "$out"
"""


def run(room, seconds, runs="", fails="-lnccl", gpu=True, arguments=None):
    begin = time.monotonic()
    done = subprocess.run([str(room / "scripts/gpu"), *(arguments or ("results.txt", str(seconds)))],
                          capture_output=True, text=True, timeout=60,
                          env={"PATH": f"{room}/bin:/usr/bin:/bin", "RUNS": runs, "FAILS": fails,
                               **({} if gpu else {"NO_GPU": "1"})})
    return done.returncode, done.stdout, time.monotonic() - begin


def main():
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        for folder in ("bin", "scripts", "tools/spar_perf", "include", "tests", "bench", "examples",
                       "build/gpu/carried"):
            (room / folder).mkdir(parents=True)
        shutil.copy(ROOT / "scripts/gpu", room / "scripts")
        shutil.copy(ROOT / "tools/spar_perf/sources.cmake", room / "tools/spar_perf")
        for launcher, arguments in (("mpirun", 2), ("ranks", 1)):
            path = room / "scripts" / launcher
            path.write_text(f'#!/bin/sh\necho "started by {launcher} $*"\nshift {arguments}\nexec "$@"\n')
            path.chmod(0o755)
        for program, text in (("nvidia-smi", SMI), ("nvcc", COMPILER), ("g++-12", COMPILER), ("strip", "#!/bin/sh\n"),
                              ("compute-sanitizer", '#!/bin/sh\necho "ran sanitizer $*"\n')):
            (room / "bin" / program).write_text(text)
            (room / "bin" / program).chmod(0o755)

        code, said, _ = run(room, 570, gpu=False)
        assert code == 77 and said == "", (code, said)

        (room / "openmpi").mkdir()
        carried = room / "build/gpu/carried/openmpi.tar.xz"
        subprocess.run(["tar", "-cJf", carried, "-C", room, "openmpi"], check=True)
        (room / "ucx").mkdir()
        subprocess.run(["tar", "-cJf", carried.with_name("ucx.tar.xz"), "-C", room, "ucx"], check=True)
        code, said, _ = run(room, 570)
        assert code == 0, said
        assert "failed" not in said and "cannot link" not in said, said
        assert said == (room / "results.txt").read_text()
        for part in ("tests", "sanitizer --tool memcheck", "sanitizer --tool racecheck", "gpu_kernels",
                     "images_on_gpu", "systems_over_mpi 4", "spar_perf_gpu --ranks 4 --count 16M --density 0.01"):
            assert f"ran {part}" in said, (part, said)
        assert "ran spar_perf_gpu_mpi --count 16M" in said, said
        assert "started by mpirun openmpi 2 build/gpu/spar_perf_gpu_mpi" in said, said
        for ranks in (2, 4, 8):
            assert f"\nskipped: NCCL with {ranks} ranks" in said, said
            assert f"\nskipped: bits of the systems over NCCL, {ranks} ranks, eager_bytes 20000" in said, said
        assert "started by mpirun openmpi 4 build/gpu/systems_over_mpi" in said, said
        assert "started by ranks 4 build/gpu/systems_over_ucx" in said, said
        for library in ("mpi", "ucx"):
            assert f"\nskipped: bits of systems_over_nccl_and_{library}, 4 processes" in said, said

        # Without Open MPI, a program that fails, one that cannot be linked, and NCCL's, whose failure does not count.
        carried.unlink()
        carried.with_name("ucx.tar.xz").unlink()
        code, said, _ = run(room, 570, "gpu_kernels exit 3\nnccl exit 1", "-lz")
        assert code == 1 and "failed with exit status 3" in said and "ran spar_perf_gpu" in said, said
        assert "ran nccl 8" in said and "cannot link images_on_gpu: error: -lz" in said, said
        assert "rec_doubling+zfp:8,two_shot+qsgd:8,mpi\nskipped: Open MPI is not carried" in said, said
        assert "== bits of systems_over_mpi, 2 processes\nskipped: Open MPI is not carried" in said, said
        assert "== bits of systems_over_ucx, 2 processes\nskipped: UCX is not carried" in said, said
        failed = [line for line in said.splitlines() if line.startswith("failed: ")]
        assert failed == ["failed: device_feedback", "failed: on_device", "failed: images_on_gpu",
                          "failed: kernels beside a copy"], failed

        # Time runs out in the tests.
        code, said, seconds = run(room, 9, "tests sleep 50")
        assert code == 0 and seconds < 12, (code, seconds, said)
        assert "ended early: no time is left" in said and "ran gpu_kernels" not in said, said
        for part in ("tests of the kernels, on the GPU", "kernels beside a copy", "NCCL with 2 ranks"):
            assert f"\nskipped: {part}\n" in said, (part, said)

        # Programs that another machine has compiled, without a GPU: from the same sources, and from others.
        code, said, _ = run(room, 570, arguments=("--build", "sm_90"), gpu=False)
        assert code == 0 and "ran" not in said, said
        code, said, _ = run(room, 570)
        assert code == 0 and "programs compiled elsewhere" in said and "== compiling" not in said, said
        assert "ran gpu_kernels" in said and "cannot link" not in said, said
        (room / "include/changed.hpp").write_text("// changed")
        code, said, _ = run(room, 570)
        assert code == 0 and "of other sources" in said and "== compiling" in said, said
        assert "ran gpu_kernels" in said, said
    print("gpu: parts fail alone, and the call ends in time")


if __name__ == "__main__":
    main()
