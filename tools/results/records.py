# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and writes the file of results that a script measures. The script reads the file before it measures, so that a
file that cannot be written, or has results of another script, is an error in the first second."""

import argparse
import json
import os
import pathlib
import sys


def stop(sentence):
    print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr)
    sys.exit(2)


def parser(doc):
    """The options of a script with the documentation `doc`: `file`, and --short for a run that takes little time."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("file", metavar="FILE", type=pathlib.Path)
    made.add_argument("--short", action="store_true")
    return made


def read(path, kind):
    """The results of an earlier run, a `kind`, which is dict or list; an empty one if there is no file yet. Ends the
    program with exit status 2 if the file has something else, or if its folder is missing."""
    if not path.absolute().parent.is_dir():
        stop(f"{path} cannot be written: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        stop(f"{path} is not a plain file")
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found = json.loads(text) if text.strip() else kind()
    except (OSError, ValueError) as error:
        stop(f"{path} cannot be read as JSON: {error}")
    if not isinstance(found, kind):
        stop(f"{path} has a JSON {type(found).__name__}; expected a {kind.__name__}, as this script writes")
    return found


def write(path, text):
    """Replaces the file, which an interruption leaves as it was."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)
