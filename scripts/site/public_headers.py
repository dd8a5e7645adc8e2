#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""public_headers.py FOLDER: copies the public headers to a folder, for doxygen, without what is not public and without
the namespace of the version.

Left out, line by line, are namespaces `detail` and `kernel`, private members, and the ports of transports, except base
classes. The comment at the head of a header becomes the description of the file. Members that a concept requires of
every part of a composition, of every codec or of every transport get one standard comment, unless they have their
own."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts/lint"))
import tree  # noqa: E402

# Folders and headers that only serve other headers, beside those whose names end in -inl.hpp.
INTERNAL = """
    collective/allreduce/sum_if_short.hpp
    collective/partial/activation.hpp
    collective/partial/backlog.hpp
    collective/topk/balanced_ownership.hpp
    collective/topk/flat_exchange.hpp
    collective/topk/global_threshold.hpp
    collective/topk/owners_call.hpp
    collective/topk/pruned/
    collective/tree/compressed_flex.hpp
    collective/tree/flex_
    collective/wire/all_to_all.hpp
    collective/wire/block_coder.hpp
    collective/wire/encode_pipeline.hpp
    collective/wire/encoded_parts.hpp
    collective/wire/mixed_message.hpp
    core/memory/fixed_vector.hpp
    core/memory/link.hpp
    core/memory/record_queue.hpp
    core/memory/slab.hpp
    core/util/algobase.hpp
    core/util/bounded_text.hpp
    core/util/crc32c.hpp
    core/util/fnv1a.hpp
    core/util/parallel.hpp
    core/util/splitmix.hpp
    core/util/thread.hpp
    cuda/call.hpp
    cuda/kernel/
    cuda/pieces.hpp
    cuda/recycled.hpp
    cuda/values/
    rendezvous/environment.hpp
    rendezvous/survivors.hpp
    rendezvous/table.hpp
    rendezvous/tcp/
    runtime/arguments.hpp
    runtime/endpoint/
    runtime/messages/control_subscribers.hpp
    runtime/messages/control_text.hpp
    runtime/peer_query.hpp
    runtime/tasks/rank_mutex.hpp
    storage/concatenate.hpp
    storage/kernel/
    system/any/allreduce_object.hpp
    transport/mpi/check.hpp
    transport/mpi/communicator.hpp
    transport/mpi/control.hpp
    transport/mpi/device_memory.hpp
    transport/mpi/port.hpp
    transport/mpi/wait_set.hpp
    transport/nccl/agreement.hpp
    transport/nccl/communicator.hpp
    transport/nccl/memory.hpp
    transport/nccl/transfer.hpp
    transport/sim/cores.hpp
    transport/patience.hpp
    transport/sim/deadlock_report.hpp
    transport/sim/events.hpp
    transport/sim/network.hpp
    transport/sim/port.hpp
    transport/ucx/connections.hpp
    transport/ucx/deaths.hpp
    transport/ucx/descriptors.hpp
    transport/ucx/frame.hpp
    transport/ucx/inbox.hpp
    transport/ucx/member.hpp
    transport/ucx/port.hpp
    transport/ucx/worker.hpp
""".split()

# What every part has (docs/guide/composing.md, "Every part"), what every codec has (storage/codec.hpp,
# storage/stream_codec.hpp), and what every transport has (runtime/transport_concept.hpp): a pattern of the declaration,
# and the comment.
STANDARD = [line.strip().split(" ## ") for line in r"""
    slot fills = ## The slot of a composition that this part fills.
    string_view name = ## The name in errors and reports, equal on all ranks.
    void options\(auto&&( f)?\) ## Calls `f("name", value)` for each option that must be equal on all ranks.
    void validate\( ## Throws `invalid_argument` if the options do not fit a call with these arguments.
    \baccepts\(\) ## `nothing_against` if this schedule composes with these parts, else `because<...>` with the reason.
    topk_bounds bounds\( ## How many entries the selector selects from a vector of this length.
    friend (constexpr )?bool operator== ## Whether all members are equal.
    void shared_state\(auto&& ## Calls `f(member)` for each member that is equal on all ranks.
    void own_state\(auto&& ## Calls `f(member)` for each member that may differ between ranks.
    \bencoded_bytes\(std::size_t ## The size of the encoding of `count` values, in bytes.
    \bcan_encode\(std::span ## Whether the codec can encode these `values`; others are sent without encoding.
    void encode\(std::span ## Encodes `values` at `position` to `out`. Throws `invalid_argument` if `out` is too short.
    decode\(.* in, std::span<T> ## Decodes `in` to the values `out`. Throws `invalid_argument` if `in` is too short.
    \brelative_error\(\) ## The largest error of a value, divided by the largest magnitude rounded with it.
    \babsolute_error\(\) ## The largest error of a value that is not relative to the largest magnitude.
    double cost\(const network_model& ## The seconds to encode a value, or to decode it, by the model of the `network`.
    double entry_bits\( ## The expected number of bits per entry, for the model of the costs.
    \bneutral\(\) ## The neutral element, which leaves the other operand unchanged.
    T operator\(\)\(T a, T b\) ## The result for the values `a` and `b`.
    \)\((const host_work|Work)& work ## Moves entries from `x` to a stream. Throws `invalid_argument` like `validate`.
    task<.*> operator\(\)\(channel<Net> net ## The coroutine of one call on one rank (see collective/algorithm.hpp).
    void operator\(\)\(Args&&\.\.\.\) && = delete ## Deleted: the algorithm must outlive its coroutine.
    \(const \w+&\) = delete ## Not copyable.
    \brank_t rank\(\) const ## The number of this rank, from 0.
    \brank_t size\(\) const ## The number of ranks.
    \bscheduler& scheduler\(\) ## The queue of the coroutines that are ready to run on this rank.
    \bpool& memory\(\) const ## The rank's pool.
    \bendpoint& node\(\) ## The state of the rank.
    \bdouble now\(\) ## Seconds since an arbitrary start.
    void compute\(std::uint64_t entries\) ## Reports local work on `entries` entries.
    void progress\(bool block\) ## Completes operations and resumes coroutines; if `block`, waits for an operation.
    void post\(const control_message& note ## Sends the control message `note` to the rank `peer`.
    void await\(operation_record& r ## Resumes the coroutine `waiting` when the operation `r` has ended.
    void share\(\) const ## Throws `invalid_argument` if no `progress_thread` can use this rank.
    bool sleep_until\(double time ## Blocks until the rank has something to do; false if it cannot.
    void wake\(\) ## Ends `sleep_until`.
    device_path path_on_device\( ## How a payload of `bytes` bytes in `pieces` pieces in device memory travels.
    void check_device\(\) ## Throws `invalid_argument` if the device of the transport is not the current one.
    void wait_until_idle\(\) ## Waits until the device works on no message of this rank.
    auto sleep\(double seconds\) \{ ## In a simulated program: `co_await sleep(seconds)` takes this virtual time.
    \sawait_(ready|suspend|resume)\( ## Part of the interface of awaitable types, for `co_await`.
""".strip().split("\n")]

COMMENT = re.compile(r"\s*///|\s*// ")
GUIDE = re.compile(r"(///.*?)docs/(guide/\w+)\.md")
LEFT_OUT = re.compile(r"(namespace (spar::)?(detail|kernel|storage::detail|selector::detail)) \{")
PORT = re.compile(r"(?! )((\[\[[\w:]+\]\] )?(class|struct) (?!decorated|observing)\w+_port\b|"
                  r"[\w:<>, \[\]]*\b(\w+_port(<\w+>)?|detail::\w+)::)")


def without_internals(lines):
    """Replaces what is not public by empty lines."""
    out, start, skipping, private = [], 0, None, None
    for number, line in enumerate(lines):
        if skipping:
            out.append("")
            if line.split(";")[0] == skipping:
                skipping = None
            continue
        if left_out := LEFT_OUT.match(line):
            skipping = f"}} // {left_out[1]}"
            out.append("")
            continue
        if not line or line.startswith(("}", "namespace", "#")):
            start = number + 1
        if PORT.match(line):
            for before in range(start, number):
                out[before] = ""
            out.append("")
            if not line.endswith(";") and not re.search(r"\}$", line):
                skipping = "}"
            continue
        out.append(line)
    # Private members, by the indentation of the access specifier and of the end of the class.
    for number, line in enumerate(out):
        specifier = re.match(r"( *) (public|protected|private):$", line)
        if private is not None and (specifier and specifier[1] == private or re.match(private + r"\};", line)):
            private = None
        if specifier and specifier[2] == "private" and private is None:
            private = specifier[1]
            continue
        if private is not None:
            out[number] = ""
    return out


def with_comments(lines):
    """Adds the standard comments, and \\overload to an overload that follows a function with a comment."""
    out, prefix, documented = [], [], None
    for line in lines:
        if re.match(r" +(template <|requires |\[\[)[^;{]*$", line):
            prefix.append(line)
            continue
        start = prefix[0] if prefix else line
        name = re.match(r"  (?! |//|return |if |for |using |:|})[^=(]*?(operator\W+|~?\w+)\(", line)
        comment = None
        if re.match(r" +\S", start) and not COMMENT.match(out[-1] if out else "") and "///" not in line:
            comment = next((text for form, text in STANDARD if re.search(form, line)), None)
            if not comment and name and name[1] == documented:
                comment = "\\overload"
        if comment:
            begin = re.match(r" *", start)[0]
            start = f"{begin}/** {comment} */ {start.lstrip()}"
        if name:
            documented = name[1] if comment or COMMENT.match(out[-1] if out else "") or "///<" in line else None
        elif not line:
            documented = None
        out += [start, *prefix[1:], line] if prefix else [start]
        prefix = []
    return out + prefix


def public_text(text):
    """The text of a header for the reference, in which pages of the guide are links."""
    lines = [GUIDE.sub(r'\1<a href="../\2.html">docs/\2.md</a>', line) for line in text.split("\n")]
    if lines[0].startswith("// SPDX"):
        lines[0] = "/// \\file"
        for number in range(1, len(lines)):
            if not re.match(r"//( |$)", lines[number]):
                break
            lines[number] = "/" + lines[number]
    return "\n".join(with_comments(without_internals(lines)))


def main(folder):
    names = tree.files(".hpp", ".cuh", under="include/spar/")
    for internal in INTERNAL:
        if not any(name.startswith("include/spar/" + internal) for name in names):
            sys.exit(f"public_headers.py: INTERNAL names {internal}, which does not exist")
    for name in names:
        inner = name.removeprefix("include/spar/")
        if inner.startswith(tuple(INTERNAL)) or inner.endswith("-inl.hpp"):
            continue
        to = folder / name
        text = public_text(tree.unversioned(tree.text(name)))
        if not to.exists() or to.read_text() != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
