# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tests with an extension module that has the address and undefined-behaviour sanitizers, and looks for their
reports in all processes.

sanitized.py LIBRARIES TEST...

LIBRARIES are loaded before Python: the sanitizers' runtime, and the C++ library, whose functions that runtime replaces.
Python itself and NumPy leak; a leak counts if the module, or what the module called, allocated the memory."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODULE = re.compile(r"[(/]_spar\.")  # in a frame, whose end is %M
FRAMES = 12  # of each allocation; the innermost ones tell who allocated
INNERMOST = 6
OTHERS = "not torch and not jax"  # to import these takes most of a minute with sanitizers: one file of tests does
INTERNED = re.compile(r" in PyUnicode_Intern")  # Python keeps such strings, as names of functions, until it ends


def leaks(report):
    """The leaks of the module in a report of the leak sanitizer."""
    for leak in re.split(r"\n\s*\n", report):
        if re.match(r"\s*Direct leak of", leak):
            frames = re.findall(r"^\s*#\d+ .*", leak, re.MULTILINE)
            if any(map(MODULE.search, frames[:INNERMOST])) and not any(map(INTERNED.search, frames)):
                yield leak


def main(libraries, *tests):
    with tempfile.TemporaryDirectory() as folder:
        options = [
            f"log_path={folder}/report",
            "detect_leaks=1",
            "exitcode=0",  # the exit status is that of the program, not of its leaks
            "abort_on_error=1",
            "allocator_may_return_null=1",
            "fast_unwind_on_malloc=0",
            f"malloc_context_size={FRAMES}",
            "stack_trace_format='#%n %F %L %M'",
        ]
        environment = {
            "LD_PRELOAD": libraries,
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": ":".join(options),
            "UBSAN_OPTIONS": f"log_path={folder}/report:print_stacktrace=1:abort_on_error=1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *tests]
        if not any("torch" in pathlib.Path(test).name for test in tests):
            command += ["-k", OTHERS]
        done = subprocess.run(command, env=os.environ | environment)
        found = []
        for report in sorted(pathlib.Path(folder).glob("report.*")):
            text = report.read_text(errors="replace")
            if "ERROR: AddressSanitizer" in text or "runtime error:" in text:
                found.append(text)
            found += leaks(text)
    print("\n".join(found))
    print(f"{len(found)} reports of the sanitizers about spar")
    return done.returncode or bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
