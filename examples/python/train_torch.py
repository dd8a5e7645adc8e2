# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model with DistributedDataParallel, with one system after the other for the gradients, and compares them.

    scripts/hosts 1,1,1,1 1gbit scripts/ranks 4 python examples/python/train_torch.py --model mlp

Models: "image" and "mlp" classify Fashion-MNIST (Debian's package dataset-fashion-mnist), with 0.24 and 25 million
parameters; "embedding" classifies made-up bags of 64 words with a sparse embedding of 200,000 x 32.
Systems: "dense" (gloo), "fp16", "powersgd" (rank 2), "ok_topk", "topk" (1 %), "two_shot" (8 bits), "eager" or
"eager:quorum:3" (steps that do not wait for late ranks), or the text of any composition such as "ring+bf16". A sparse
embedding is reduced by gloo's COO allreduce with "dense", by spar with its own systems.
MB/step is what the interfaces of rank 0's host send to other hosts: 0 if all ranks run on one host.
"""

import argparse
import gzip
import json
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import spar
import spar.torch


class Bags(torch.nn.Module):
    """Classifies bags of words."""

    def __init__(self, words, width):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(words, width, sparse=True)
        self.classes = torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.classes(self.embedding(x))


def perceptron(*neurons):
    layers = [torch.nn.Flatten()]
    for size, to in zip(neurons, neurons[1:]):
        layers += [torch.nn.Linear(size, to), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


MODELS = {
    "image": lambda: perceptron(784, 256, 128, 10),
    "mlp": lambda: perceptron(784, 4650, 4650, 10),
    "embedding": lambda: Bags(200_000, 32),
}


def images(folder, part):
    def read(name, header):
        return numpy.frombuffer(gzip.open(folder / name).read(), numpy.uint8, offset=header)

    pixels = read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = read(f"{part}-labels-idx1-ubyte.gz", 8)
    return torch.from_numpy(pixels / numpy.float32(255)), torch.from_numpy(labels.astype(numpy.int64))


def bags(count, words, seed):
    """Bags whose words have a Zipf distribution; the class of a bag is that of most of its words."""
    random = numpy.random.default_rng(seed)
    bag = (words * random.random((count, 64)) ** 4).astype(numpy.int64)
    labels = numpy.array([numpy.bincount(row, minlength=10).argmax() for row in bag * 7 % 10])
    return torch.from_numpy(bag), torch.from_numpy(labels)


def register(system, model, comm, options):
    """Registers the hook of `system`; returns spar's state or None."""
    if system == "dense":
        return None
    if system == "fp16":
        return model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if system == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        return model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    name, _, store = system.partition("+")
    if name in ("ok_topk", "topk"):
        factory = getattr(spar.torch, name)
        # Beside the embedding are 330 values: to send them takes less time than a selection.
        exclude = model.module.classes.parameters() if options.model == "embedding" else ()
        state, hook = factory(
            comm, options.density, store=store or None, warmup_steps=options.warmup, exclude=exclude
        )
    elif system.partition(":")[0] == "eager":
        state, hook = spar.torch.eager(comm, system.partition(":")[2] or "majority")
    elif system == "two_shot":
        state, hook = spar.torch.two_shot(comm, 8, sparse_algorithm="two_shot+qsgd:8")
    else:
        state, hook = spar.torch.compressed(comm, system)
    model.register_comm_hook(state, hook)
    return state


def bytes_sent():
    """What the interfaces of this host have sent, except to the host itself."""
    lines = [line.split(":") for line in open("/proc/self/net/dev") if ":" in line]
    return sum(int(numbers.split()[8]) for name, numbers in lines if name.strip() != "lo")


def bar(text, done, of):
    if dist.get_rank() == 0 and sys.stderr.isatty():
        width = 30 * done // of
        sys.stderr.write(f"\r{text:28} [{'#' * width}{'.' * (30 - width)}] {done}/{of}" + ("\n" if done == of else ""))
        sys.stderr.flush()


def train(options, system, seed, data, comm):
    (x, labels), (test_x, test_labels) = data
    torch.manual_seed(seed)
    # PowerSGD over gloo needs a single bucket: its calls of several buckets have no order that all ranks share.
    model = DistributedDataParallel(MODELS[options.model](), bucket_cap_mb=1000 if system == "powersgd" else 25)
    state = register(system, model, comm, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)
    random = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    alone = []

    def step(batch):
        cross_entropy(model(x[batch]), labels[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()

    def set_rate(rate):
        for group in optimizer.param_groups:
            group["lr"] = rate

    warmup = 4  # DDP rebuilds its buckets, PowerSGD starts
    for at in range(options.steps):
        batch = torch.randint(len(x), (options.batch,), generator=random)
        if at in range(warmup, warmup + 3):  # what a step takes without communication
            set_rate(0)  # the weights stay as they are
            dist.barrier()
            begin = time.perf_counter()
            with model.no_sync():
                step(batch)
            alone.append(time.perf_counter() - begin)
        set_rate(options.rate * min(1, (at + 1) / (0.1 * options.steps)) * (1 - at / options.steps))
        if at == warmup + 3:
            dist.barrier()
            first, sent = at, bytes_sent()
            begin_all = time.perf_counter()
        if dist.get_rank() == numpy.random.default_rng([seed, at]).integers(dist.get_world_size()):
            time.sleep(options.late)
        step(batch)
        bar(f"{system}, seed {seed}", at + 1, options.steps)
    if isinstance(state, spar.torch.Eager):
        state.finish(optimizer)
        optimizer.step()
    dist.barrier()
    count = options.steps - first
    seconds = (time.perf_counter() - begin_all) / count
    sent = (bytes_sent() - sent) / count
    with torch.no_grad():  # each rank tests a part
        tests = zip(test_x[comm.rank :: comm.size].split(500), test_labels[comm.rank :: comm.size].split(500))
        right = sum((model.module(part).argmax(1) == of).sum() for part, of in tests).view(1).numpy()
    accuracy = float(comm.allreduce(right)[0]) / len(test_labels)
    check_weights(model, comm)
    return {"seconds": seconds, "alone": sum(alone) / len(alone), "bytes": sent, "accuracy": accuracy}


def check_weights(model, comm):
    """All ranks must have the same weights, bit for bit."""
    total = sum(p.detach().double().sum() for p in model.module.parameters()).view(1).numpy()
    least, greatest = total.copy(), total.copy()
    comm.allreduce(least, "min")
    comm.allreduce(greatest, "max")
    if least != greatest:
        raise RuntimeError(f"the weights of the ranks differ: their sums are from {least[0]} to {greatest[0]}")


def plot(results, path):
    from matplotlib import pyplot

    names = [of["system"] for of in results]
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3))
    titles = {"seconds": "seconds a step", "bytes": "bytes a step", "accuracy": "accuracy"}
    for axis, (key, title) in zip(axes, titles.items()):
        axis.bar(names, [of[key] for of in results])
        if key == "seconds":
            axis.bar(names, [of["seconds"] - of["communication"] for of in results], label="computing")
            axis.legend()
        axis.set_title(title)
        axis.tick_params(axis="x", rotation=45)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="image")
    parser.add_argument("--systems", default="dense,fp16,powersgd,ok_topk", help="separated by commas")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank")
    parser.add_argument("--rate", type=float, default=0.2, help="the highest learning rate")
    parser.add_argument("--density", type=float, default=0.01, help="of ok_topk and topk")
    parser.add_argument("--warmup", type=int, default=0, help="steps in which ok_topk and topk first send all values")
    parser.add_argument("--late", type=float, default=0, help="seconds that a random rank sleeps in each step")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--json", help="writes the results to this file")
    parser.add_argument("--plot", help="draws the results to this file")
    options = parser.parse_args()
    if options.steps < 10:
        parser.error(f"--steps is {options.steps}; expected at least 10")
    if options.model == "embedding":
        data = bags(20_000, 200_000, 1), bags(2_000, 200_000, 2)
    elif not options.data.exists():
        parser.error(f"no images in {options.data}; Debian's package dataset-fashion-mnist has them")
    else:
        data = images(options.data, "train"), images(options.data, "t10k")
    torch.set_num_threads(1)
    if "SPAR_INTERFACE" in os.environ:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ["SPAR_INTERFACE"])
    dist.init_process_group("gloo")
    results = []
    with spar.Communicator.from_env() as comm:
        for system in options.systems.split(","):
            runs = [train(options, system, seed, data, comm) for seed in range(options.seeds)]
            mean = {key: sum(run[key] for run in runs) / len(runs) for key in runs[0]}
            mean["communication"] = max(0.0, mean["seconds"] - mean.pop("alone"))
            mean["accuracies"] = [run["accuracy"] for run in runs]
            results.append({"system": system, **mean})
            if comm.rank == 0:
                if len(results) == 1:
                    print(f"{'system':24} {'s/step':>8} {'s comm':>8} {'MB/step':>9} {'accuracy':>9}")
                print(
                    f"{system:24} {mean['seconds']:8.3f} {mean['communication']:8.3f} {mean['bytes'] / 1e6:9.3f} "
                    f"{mean['accuracy']:9.4f}",
                    flush=True,
                )
        if comm.rank == 0 and options.json:
            about = {"model": options.model, "ranks": comm.size, "steps": options.steps, "density": options.density}
            pathlib.Path(options.json).write_text(json.dumps({**about, "systems": results}, indent=2) + "\n")
        if comm.rank == 0 and options.plot:
            plot(results, options.plot)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
