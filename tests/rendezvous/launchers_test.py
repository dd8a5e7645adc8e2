#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tests/rendezvous/launchers_test.py PROGRAM: jobs of four ranks on two emulated hosts, with the variables and the
names of hosts that Slurm, torchrun and the manifest for Kubernetes in docs/guide/ranks.md give."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(sys.argv[1])
RANKS = 4

try:
    import yaml
except ImportError:
    print("PyYAML is missing")
    sys.exit(77)

if "SPAR_HOSTS" not in os.environ:
    own = sys.executable, __file__, PROGRAM
    os.execv(ROOT / "scripts/hosts", ["scripts/hosts", "2,2", "1gbit", *own])


def host_of(rank):
    return 1 + rank // 2


def run(what, command, variables_of):
    """Runs `command` for each rank with the variables `variables_of(rank)`, and expects that rank 0 hears of all."""
    ranks = []
    for rank in reversed(range(RANKS)):
        variables = [f"{name}={value}" for name, value in ({"SPAR_DEADLINE": 20} | variables_of(rank)).items()]
        line = shlex.join(["env", "-u", "SPAR_HOSTS", "-u", "SPAR_INTERFACE", *variables, *command])
        shell = os.environ["SPAR_REMOTE_SHELL"], f"10.77.0.{host_of(rank)}"
        ranks.append(subprocess.Popen([*shell, line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [rank.communicate() for rank in ranks]
    expected = "".join(f"rank {rank} of {RANKS}\n" for rank in range(RANKS))
    if any(rank.returncode for rank in ranks) or said[-1][0] != expected:
        sys.exit(f"{what}: expected that rank 0 prints {expected!r} and all end with 0, got {said}")


def slurm(rank):
    return {
        "SLURM_JOB_ID": 4711,
        "SLURM_STEP_ID": 0,
        "SLURM_PROCID": rank,
        "SLURM_NTASKS": RANKS,
        "SLURM_STEP_NUM_TASKS": RANKS,
        "SLURM_STEP_NUM_NODES": 2,
        "SLURM_JOB_NODELIST": "login,nid[001-003,7]",
        "SLURM_STEP_NODELIST": "nid[001,7]",
    }


def torchrun(rank):
    return {
        "RANK": rank,
        "LOCAL_RANK": rank % 2,
        "GROUP_RANK": rank // 2,
        "ROLE_RANK": rank,
        "WORLD_SIZE": RANKS,
        "LOCAL_WORLD_SIZE": 2,
        "GROUP_WORLD_SIZE": 2,
        "ROLE_WORLD_SIZE": RANKS,
        "MASTER_ADDR": "nid001",
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "run",
    }


def manifest():
    """The job in the manifest of the page, which has to fit together."""
    page = (ROOT / "docs/guide/ranks.md").read_text(encoding="utf-8")
    service, job = yaml.safe_load_all(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert service["kind"] == "Service" and service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == RANKS
    return job["metadata"]["name"], pod


name, pod = manifest()
container = pod["containers"][0]
secret = {"secretKeyRef": {"name": "job", "key": "secret"}}
variables = {one["name"]: one.get("value", "a secret") for one in container["env"]}
assert [one["valueFrom"] for one in container["env"] if "valueFrom" in one] == [secret]

hosts = pathlib.Path("/run/tmp/hosts")  # the mounts belong to this run alone
hosts.write_text(f"127.0.0.1 localhost\n10.77.0.1 nid001 {name}-0.{pod['subdomain']}\n10.77.0.2 nid7\n")
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)

run("Slurm", [PROGRAM], slurm)
run("torchrun", [PROGRAM], torchrun)
in_image = [part.replace("./program", shlex.quote(PROGRAM)) for part in container["command"]]
run("Kubernetes", in_image, lambda rank: variables | {"JOB_COMPLETION_INDEX": rank})
