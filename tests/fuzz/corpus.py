#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the initial corpus of the fuzz targets: small inputs, one of each kind. Invalid ones are named bad_*."""

import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
SPARSE, DENSE, ENCODED, PARTS, CODED = 1, 2, 3, 4, 5
COUNTERS = {"I": 0x20, "Q": 0x40}  # a message of counters instead of the call's elements
WIDE = {0: ("f", "I"), 1: ("d", "Q")}  # types of value and index


def array(code, numbers):
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def message(form, count, *pieces):
    """A message in the format that fuzz.hpp reads."""
    lengths = [len(p) for p in pieces] + [0] * (3 - len(pieces))
    return struct.pack("<BQ3H", form, count, *lengths) + b"".join(pieces)


def sparse(value, index, indices):
    return message(SPARSE, len(indices), array(index, indices), array(value, [1.5] * len(indices)))


def dense(value, count):
    return message(DENSE, count, array(value, [2.5] * count))


def coded_bytes(value, indices, begin=0):
    """Encodes like tests/support/varint.hpp; all gaps are below 128."""
    gaps = [i - (indices[e - 1] + 1 if e else begin) for e, i in enumerate(indices)]
    return bytes(gaps) + array(value, [1.5] * len(indices))


def coded(value, indices, begin=0):
    return message(CODED, len(indices), coded_bytes(value, indices, begin))


def coded_parts(value, *streams):
    """Yields streams, each with the beginning of its range."""
    each = [coded_bytes(value, indices, begin) for indices, begin in streams]
    table = [x for b, (i, _) in zip(each, streams) for x in (len(b), len(i) | CODED << 56)]
    return message(CODED, sum(len(i) for i, _ in streams), b"".join(each), array("Q", table))


def counters(code, numbers):
    return message(DENSE | COUNTERS[code], len(numbers), array(code, numbers))


def parts(value, index, *streams):
    ends = [sum(len(s) for s in streams[: i + 1]) for i in range(len(streams))]
    joined = [i for s in streams for i in s]
    return message(PARTS, len(joined), array("Q", ends), array(index, joined), array(value, [3.0] * len(joined)))


def header(form, count, pieces, element=1, version=3):
    padded = b"".join(p + bytes(-len(p) % 16) for p in pieces)
    lengths = [len(p) for p in pieces] + [0] * (3 - len(pieces))
    fields = (0x7073, version, form | 5 << 4, element, 0, 7, 9, 1000, count, *lengths, 0, 0)
    return struct.pack("<HBBBBHQQQ3QII", *fields) + padded


def short_header(payload, magic=0xB3):
    return struct.pack("<IIQ", magic | 1 << 8 | 5 << 12 | 7 << 16, 0, 9) + payload


def envelopes():
    def envelope(data, repaired=1, zeros=0):  # whether the target repairs the checksum; the size
        return struct.pack("<BH", repaired, len(data) + zeros) + data

    three = header(SPARSE, 3, [array("I", [7, 8, 9]), array("f", [1, 2, 3])])
    yield "short", envelope(short_header(array("f", [1, 2, 3])))
    yield "bad_short_of_version_1", envelope(short_header(array("f", [1]), magic=0x5D))
    yield "bad_short_of_version_2", envelope(short_header(array("f", [1]), magic=0xB2))
    yield "bad_version_1", envelope(header(SPARSE, 0, [], version=1))
    yield "bad_version_2", envelope(header(SPARSE, 0, [], version=2))
    yield "bad_short_with_too_much", envelope(short_header(b""), zeros=4100)
    yield "sparse", envelope(three)
    yield "bad_damaged", envelope(three, repaired=0)
    yield "parts", envelope(header(PARTS, 2, [array("Q", [1, 2]), array("I", [7, 8]), array("f", [1, 2])]))
    yield "dense", envelope(header(DENSE, 3, [array("f", [1, 2]), array("f", [3])]))
    yield "empty", envelope(header(SPARSE, 0, []))
    yield "apart", envelope(header(DENSE, 5000, [bytes(20000)])[:64])


def streams():
    for kind, (value, index) in enumerate([("f", "I"), ("f", "Q"), ("d", "I"), ("d", "Q")]):
        front = struct.pack("<BQQQ", kind, 1000, 100, 200)
        yield f"sparse_{kind}", front + sparse(value, index, [100, 150, 299])
        yield f"dense_{kind}", struct.pack("<BQQQ", kind, 1000, 100, 9) + dense(value, 9)
    for name, at in [("bad_at_99", 99), ("at_200", 200), ("bad_at_300", 300)]:
        yield name, struct.pack("<BQQQ", 0, 1000, 100, 200) + sparse("f", "I", [at])
    for kind, value in [(4, "f"), (5, "d")]:
        front = struct.pack("<BIIH", kind, 1000, 100, 200)
        yield f"coded_{kind}", front + coded(value, [100, 150, 299 - 50], 100)
        yield f"encoded_{kind}", front + message(ENCODED, 200, bytes(400))
        yield f"bad_coded_{kind}_out_of_range", front + coded(value, [100, 200, 300], 100)
        yield f"bad_coded_{kind}_short", front + message(CODED, 3, coded_bytes(value, [100, 110], 100))
        yield f"bad_coded_{kind}_long", front + message(CODED, 1, coded_bytes(value, [100, 110], 100))
        yield f"bad_coded_{kind}_count", front + message(CODED, 2**60, bytes(100))
        yield f"bad_encoded_{kind}", front + message(ENCODED, 200, bytes(399))
    yield "long", struct.pack("<BQQQ", 0, 1000, 0, 1000) + sparse("f", "I", list(range(0, 400, 2)))


def gathereds():
    for kind, (value, index) in WIDE.items():
        rounds = [parts(value, index, [3, 4]), parts(value, index, [], [5])]
        yield f"three_{kind}", struct.pack("<BBIB", kind, 1, 1000, 2) + rounds[0] + parts(value, index, [7])
        yield f"four_{kind}", struct.pack("<BBIB", kind, 2, 1000, 1) + rounds[0] + rounds[1]


    for kind, value in [(2, "f"), (3, "d")]:
        front = struct.pack("<BBHB", kind, 1, 300, 1)  # three ranks, in owned blocks
        yield f"coded_{kind}", front + coded_parts(value, ([100, 120], 100)) + coded_parts(value, ([250], 200))
        yield f"bad_coded_{kind}_block", front + coded_parts(value, ([0, 120], 0)) * 2
        two = coded_parts(value, ([250], 200), ([], 0))
        yield f"bad_coded_{kind}_parts", front + coded_parts(value, ([100, 120], 100)) + two
        many = message(CODED, 1, coded_bytes(value, [3]), array("Q", [2**63, 1 | CODED << 56]))
        yield f"bad_coded_{kind}_bytes", front + many


def qsgds():
    for kind in range(6):
        scale = array(WIDE[kind % 2][0], [2.0])
        levels = bytes(range(0, 256, 7))
        yield f"bits_{2 << kind // 2}_{kind % 2}", struct.pack("<BHH", kind, 31, 70) + (scale + levels[:32]) * 3


def mxs():
    for kind in range(6):
        codes = bytes(range(0, 256, 7))
        yield f"kind_{kind}", struct.pack("<BH", kind, 70) + (b"\x7f" + codes[:32]) * 3
        yield f"scales_{kind}", struct.pack("<BH", kind, 64) + b"\x00" + codes[:16] + b"\xff" + codes[:32] + codes[:32]


def controls():
    def note(what, text, source=0, last=1, repaired=1):
        return struct.pack("<BBBBBi52sI", repaired, what, last, len(text), 0, source, text, 0)

    def call(sequence, digest, kind=0, text=b"sum\nring", history=0):
        return struct.pack("<QQQIBBBB", digest, history, 100, sequence, kind, 1, 0, 0) + text

    abort, name, listener, inquiry = 1, 3, 4, 5
    number = struct.pack("<QQ", 12345, 2048)
    failed = [struct.pack("<i", rank) for rank in range(5)]
    yield "abort", note(abort, failed[2] + b"it has failed", source=2)
    yield "abort_for_another", note(abort, failed[0] + b"rank 0 has left", source=2)
    yield "abort_in_parts", note(abort, failed[3] + b"x" * 48, source=3, last=0) + note(abort, b"y" * 10, source=3)
    yield "of_two_ranks", (note(abort, failed[3] + b"x" * 48, source=3, last=0)
                           + note(abort, failed[2] + b"y", source=2) + note(abort, b"z", 3))
    yield "bad_abort_of_nobody", note(abort, b"why", source=2)
    yield "bad_failed_rank", note(abort, failed[4] + b"it has failed", source=2)
    yield "name", note(name, number) + note(name, number)
    yield "listener", note(listener, struct.pack("<I", 0)) + note(listener, struct.pack("<I", 7))
    yield "same_call", note(inquiry, call(0, 1), source=3)
    yield "later_call", note(inquiry, call(7, 9), source=3)
    yield "bad_other_call", note(inquiry, call(0, 9), source=3)
    yield "bad_other_history", note(inquiry, call(0, 1, history=5), source=3)
    yield "bad_half_a_call", note(inquiry, call(0, 1)[:12], source=3)
    yield "bad_call_without_names", note(inquiry, call(0, 1, text=b"sum"), source=3)
    yield "bad_kind_of_call", note(inquiry, call(0, 1, kind=3), source=3)
    yield "question", note(inquiry, call(0, 9, kind=1)[:32], source=3, last=0)
    yield "question_of_another_call", note(inquiry, call(5, 9, kind=1), source=3)
    yield "bad_answer", note(inquiry, call(0, 9, kind=2), source=3) + note(inquiry, call(0, 0, 2, b"\n"), source=2)
    yield "call_in_parts", note(inquiry, call(0, 1), source=3, last=0) * 2 + note(inquiry, b"x" * 52, source=3)
    yield "bad_call_in_many_parts", note(inquiry, call(0, 1), source=3, last=0) + note(inquiry, b"x" * 52, 3, 0) * 10
    yield "bad_damaged", note(abort, failed[2] + b"it has failed", repaired=0)
    yield "bad_gone", note(2, b"")
    left = struct.pack("<QQIiQQ", 7, 0, 4, -1, 5, 2)
    yield "left", note(6, left, source=3) + note(6, b"", source=2)
    yield "bad_left", note(6, b"1234567", source=3)
    yield "bad_half_of_left", note(6, left[:-4], source=3)
    answer = struct.pack("<i", 3) + b"waits"
    yield "wait", note(7, struct.pack("<i", 0), source=3) + note(7, answer, source=2) + note(7, b"", source=2)
    yield "bad_source", note(abort, failed[2] + b"it has failed", source=4)
    yield "bad_number", note(name, struct.pack("<QQ", 12345, 5))
    yield "bad_number_of_another_rank", note(name, number, source=2)
    yield "bad_second_number", note(name, number) + note(name, struct.pack("<QQ", 12345, 2049))


def block(numbers, low, rice=False):
    """A block of numbers of storage::coded: `low` bits of each and, in Rice code, the rest in unary."""
    bits = [n >> b & 1 for n in numbers for b in range(low)]
    unary = [b for n in numbers for b in [0] * (n >> low) + [1]] if rice else []
    packed = (int("".join(map(str, part[::-1])) or "0", 2).to_bytes((len(part) + 7) // 8, "little")
              for part in (bits, unary))
    return bytes([low | (0x80 if rice else 0)]) + b"".join(packed)


def coded_entries():
    front = {0: ("<BHII", 4, 4), 1: ("<BHQI", 8, 8), 2: ("<BHQI", 4, 8), 3: ("<BHII", 8, 4), 4: ("<BHII", 4, 4)}
    for kind, (layout, value, index) in front.items():
        def stream(indices, values, count=3, size=200):
            return struct.pack(layout, kind, count, 1000, size) + indices + values

        values = bytes([0]) + bytes(range(value)) + block([0, 5, 9], 4)
        gaps = b"\5\3" + block([0, 0, 90], 7)
        runs = b"\6\3" + (2).to_bytes(index, "little") + block([0, 7], 3) + block([0, 1], 1)
        yield f"gaps_{kind}", stream(gaps, values)
        yield f"rice_{kind}", stream(b"\1" + block([3, 0, 90], 5, True), values)
        yield f"far_{kind}", stream(bytes([1 | index << 2]) + (100).to_bytes(index, "little") + gaps[2:], values)
        yield f"runs_{kind}", stream(runs, values)
        yield f"largest_{kind}", stream(gaps, b"\1" + values[1:])
        yield f"whole_block_{kind}", stream(b"\1\0", bytes([0]) + bytes(value) + b"\0", 256, 256)
        yield f"bad_code_{kind}", stream(b"\7" + gaps[1:], values)
        yield f"bad_distance_{kind}", stream(b"\5\xc8" + gaps[2:], values)
        yield f"bad_long_distance_{kind}", stream(bytes([1 | index + 1 << 2]) + bytes(index + 1) + gaps[2:], values)
        yield f"bad_width_{kind}", stream(b"\1" + bytes([8 * index + 1]) + bytes(200), values)
        yield f"bad_range_{kind}", stream(b"\1" + block([3, 0, 198], 8), values)
        yield f"bad_unary_{kind}", stream(b"\1\x80" + bytes(200), b"")
        yield f"bad_number_of_runs_{kind}", stream(b"\2" + b"\xff" * index, values)
        yield f"bad_long_run_{kind}", stream(runs[:-1] + b"\3", values)
        yield f"bad_long_{kind}", stream(gaps, values + b"\0")
        yield f"bad_values_{kind}", stream(gaps, values[:-1])


def codecs():
    for kind in range(40):
        yield f"kind_{kind}", struct.pack("<BH", kind, 70 + kind) + bytes(range(0, 256, 5)) * 12


def packeds():
    for wide in range(2):
        row = bytes(range(16))
        yield f"widths_{wide}", struct.pack("<BBH", wide, 32, 300) + bytes([3, 0, 1]) + row * 4
        yield f"one_row_{wide}", struct.pack("<BBH", wide, 64, 2) + bytes([9]) + row
        yield f"nothing_{wide}", struct.pack("<BBH", wide, 0, 0)
        yield f"zeros_{wide}", struct.pack("<BBH", wide, 0, 600) + bytes(5)
        yield f"bad_width_{wide}", struct.pack("<BBH", wide, 8, 2) + bytes([9]) + row
        yield f"bad_long_{wide}", struct.pack("<BBH", wide, 64, 2) + bytes([9]) + row + b"\0"
        yield f"bad_short_{wide}", struct.pack("<BBH", wide, 64, 128) + bytes([9]) + row * 8


def zfp_fields():
    """A byte each for double, dimensions - 1, extents - 1, and the mode with its number; then an encoding."""
    for name, head, code in [
        ("zeros", [0, 0, 7, 0], "00"),
        ("lossless", [0, 0, 3, 0], "010a0b"),
        ("lossless_doubles", [1, 1, 1, 1, 0], "0150b000"),
        ("rate", [0, 0, 3, 1, 7], "05310b00"),
        ("precision", [0, 1, 1, 1, 2, 7], "05710814010000"),
        ("accuracy", [1, 0, 3, 3, 1, 0], "05885900"),
    ]:
        encoding = bytes(8) + bytes.fromhex(code)
        yield name, bytes(head) + encoding
        yield f"bad_long_{name}", bytes(head) + encoding + b"\0"
        yield f"bad_short_{name}", bytes(head) + encoding[:-1]
        yield f"bad_form_{name}", bytes(head) + struct.pack("<Q", 2) + encoding[8:]
    yield "plain", bytes([0, 0, 3, 0]) + struct.pack("<Q4f", 1, 1, 2, 3, 4)
    yield "bad_plain", bytes([0, 0, 3, 0]) + struct.pack("<Q3f", 1, 1, 2, 3)
    yield "bad_nothing", bytes([0, 0, 3, 0])


def ok_topk_of_two(value, index, low):
    """The other rank has entries in this rank's block, but no large ones."""
    entries = counters("Q", [1])  # in a block, for its bounds
    search = counters("Q", [0] * 31) * (8 if value == "f" else 14)  # values that reach each probe
    # above a threshold, equal to it, and received by the owner
    counts = [counters(index, [2, 0, 6]), search, counters(index, [0, 0, 6])]
    return entries + entries + low, b"".join(counts) + parts(value, index, [])


def ok_topk_of_four(value, index):
    """The four largest sums lie on this rank, which sends one of them to each other rank."""
    entries = counters("Q", [0] * 2) + counters("Q", [0]) + counters("Q", [4]) + counters("Q", [4] * 2)
    counts = counters(index, [0] * 3) + counters(index, [0] * 6)
    search = counters("Q", [0] * 31) * 2
    return (
        entries
        + sparse(value, index, []) * 3
        + counts
        + search
        + counts
        + parts(value, index, [1])
        + parts(value, index, [2], [3])
    )


def index_set(indices):
    """A set of indices in the code of storage::coded; all gaps are below 128."""
    gaps = [i - (indices[e - 1] + 1 if e else 0) for e, i in enumerate(indices)]
    return b"\1" + block(gaps, 7) if indices else b""


def number(code, x):
    """One value, or the magnitude of one value with a code of unsigned numbers, in the code of storage::coded."""
    return bytes([0]) + array(code, [x]) + block([0], 0)


def pruned_slice(value, index, large=(5,), positive=(0,), negative=(2,), least=1.0, more=b""):
    """Entries with values, and the signs of others with at least the magnitude `least`."""
    counts = array("Q", [len(positive), len(negative)]) + array(value, [least]).ljust(8, b"\0")
    small = index_set(positive) + index_set(negative)
    return message(CODED, len(large), coded_bytes(value, large), counts, small + more)


def pruned_calls(value, index):
    """Of 2 ranks: the other rank's slice, its request, its answer, and the largest sums that it owns."""
    bits = {"f": "I", "d": "Q"}[value]
    pattern = struct.unpack(bits, array(value, [1.1]))[0]

    def winners(others=(9,), alone=(), shared=(0,), more=b""):
        return message(CODED, len(others), coded_bytes(value, others, 8), array("Q", [len(alone), len(shared)]),
                       index_set(alone) + index_set(shared) + number(value, 3.0) * len(shared) + more)

    def request(places=(1,), more=b""):
        return message(CODED, 0, b"", array("Q", [len(places)]), index_set(places) + more)

    def answer(magnitude=pattern, more=b""):
        return message(CODED, 0, b"", b"", number(bits, magnitude) + more)

    first, more = pruned_slice(value, index), b"\0"
    yield "shared", first + request() + answer() + winners()
    yield "alone", first + request() + answer() + winners((9,), (0,), ())
    nothing = message(CODED, 0, b"", b"", b"")
    without_small = pruned_slice(value, index, positive=(), negative=(), least=1.25)
    yield "all_large", without_small + request() + nothing + winners()
    yield "bad_twice", pruned_slice(value, index, positive=(0, 5))
    yield "bad_below", pruned_slice(value, index, large=(8,))
    yield "bad_least", pruned_slice(value, index, least=1.5)
    yield "bad_least_at_floor", pruned_slice(value, index, least=1.25)
    yield "bad_long_slice", pruned_slice(value, index, more=more)
    yield "bad_place", first + request((2,))
    yield "bad_places", first + request((0, 1, 2))
    yield "bad_long_request", first + request((1,), more)
    yield "bad_entries_in_request", first + message(CODED, 0, b"\0", array("Q", [1]), index_set((1,)))
    yield "bad_answer", first + request() + answer(pattern // 2)
    yield "bad_high_answer", first + request() + answer(pattern * 2)
    yield "bad_long_answer", first + request() + answer(pattern, more)
    yield "bad_no_answer", first + request() + nothing
    yield "bad_winner_place", first + request() + answer() + winners((9,), (), (1,))
    yield "bad_own_winner", first + request() + answer() + winners((12,), (), (0,))
    yield "bad_number_of_winners", first + request() + answer() + winners((), (), (0,))
    yield "bad_long_winners", first + request() + answer() + winners(more=more)
    yield "bad_format", first + request() + answer() + sparse(value, index, [9])


def pruneds():
    for kind, (value, index) in WIDE.items():  # 2 ranks, n = 16, an entry at every fourth index
        for name, messages in pruned_calls(value, index):
            if kind == 0 or not name.startswith("bad_"):
                yield f"{name}_{kind}", bytes([kind, 1, 0, 16, 3]) + messages


def collectives():
    def call(which, kind, first, second, root=0, rank=0):  # 2 ranks, n = 16, an entry at every fourth index
        return bytes([2 * which + kind, 1, rank, root, 16, 3]) + first + second

    fitting, another = message(DENSE, 0), message(DENSE | 0x80, 0)
    for kind, (value, index) in WIDE.items():
        low, high = sparse(value, index, [1, 2, 5]), sparse(value, index, [9, 10])
        for which in range(9):  # streams: the first message lies in this rank's block, the second in the other
            second = parts(value, index, [9, 10]) if which == 1 else high
            yield f"call_{which}_{kind}", call(which, kind, low, second, root=which == 8)
        for which in (9, 10, 11, 13):
            first, unfit = (dense(value, 8), dense(value, 8)) if which == 10 else (fitting, another)
            yield f"call_{which}_{kind}", call(which, kind, first, fitting, root=which == 13)
            yield f"bad_call_{which}_{kind}", call(which, kind, unfit, another, root=which == 13)
        yield f"call_12_{kind}", call(12, kind, dense(value, 16), b"")
        yield f"bad_call_12_{kind}", call(12, kind, dense(value, 15), b"")
        yield f"call_15_{kind}", call(15, kind, low, counters("Q", [2]) + parts(value, index, [9, 10]))
        yield f"call_16_{kind}", call(16, kind, high, b"")
        yield f"call_16_{kind}_below", call(16, kind, high, b"", rank=1)
        yield f"call_17_{kind}", call(17, kind, *ok_topk_of_two(value, index, low))
        yield f"call_17_{kind}_evened", bytes([2 * 17 + kind, 3, 0, 0, 32, 3]) + ok_topk_of_four(value, index)
        encoded = [message(ENCODED, count, bytes(2 * count)) for count in (3, 3, 2)]  # a block, in pieces
        yield f"call_18_{kind}", call(18, kind, b"".join(encoded) * 2, b"")
        yield f"call_19_{kind}", call(19, kind, encoded[0] * 5, message(ENCODED, 1, bytes(2)))
        shots = b"".join(2 * one for one in encoded)
        yield f"call_28_{kind}", call(28, kind, shots, b"")
        yield f"bad_call_28_{kind}", call(28, kind, encoded[0], encoded[2])
        one = message(ENCODED, 1, bytes(2))  # the last of six pieces, which is in the second of four lanes
        yield f"call_29_{kind}", call(29, kind, encoded[0] * 3 + one, encoded[0] * 2)
        yield f"bad_call_29_{kind}", call(29, kind, encoded[0] * 4, encoded[2] * 2)
        largest = counters("Q", [int.from_bytes(struct.pack("<" + value, 1), "little")])
        beyond = counters("Q", [2**63 if kind else 2**40])
        codes = b"".join(message(ENCODED, count, bytes(1)) for count in (3, 3, 2)) * 2  # each of width 0
        yield f"call_30_{kind}", call(30, kind, largest, codes)
        yield f"bad_call_30_{kind}", call(30, kind, largest, message(ENCODED, 3, bytes([1])) * 6)
        yield f"bad_call_30_{kind}_largest", call(30, kind, beyond, codes)
        yield f"call_20_{kind}", call(20, kind, dense(value, 8), fitting)
        yield f"call_21_{kind}", call(21, kind, low, high)
        near, far = coded(value, [1, 2, 5]), coded(value, [9, 10], 8)
        yield f"call_22_{kind}", call(22, kind, near, b"")
        yield f"call_23_{kind}", call(23, kind, near, coded_parts(value, ([9, 10], 8)))
        yield f"call_24_{kind}", call(24, kind, near, far)
        yield f"call_25_{kind}", call(25, kind, near, coded_parts(value, ([9, 10], 8)))
        yield f"call_27_{kind}", call(27, kind, near, b"", root=1)
        yield f"bad_call_22_{kind}", call(22, kind, coded(value, [1, 2, 50]), b"")
        yield f"bad_call_23_{kind}", call(23, kind, near, far)
        yield f"bad_call_25_{kind}", call(25, kind, near, coded_parts(value, ([1, 12], 0)))
        yield f"bad_call_18_{kind}", call(18, kind, encoded[2], encoded[2])
        yield f"bad_call_20_{kind}", call(20, kind, dense(value, 8), another)
        yield f"call_14_{kind}", call(14, kind, parts(value, index, [9, 10]), b"")
        yield f"bad_call_1_{kind}", call(1, kind, low, parts(value, index, [1, 2]))
    yield "doubling_of_four", bytes([0, 3, 1, 0, 16, 2]) + sparse("f", "I", [1, 9]) + dense("f", 16)
    yield "doubling_of_three", bytes([0, 2, 1, 0, 16, 2]) + sparse("f", "I", [1, 9]) * 3


def states():
    def repaired(words, values):
        return bytes([0, len(words), len(values)]) + array("Q", words) + array("f", values)

    first, own = [4, 0x3F800000], [0x3F000000, 4]  # calls and thresholds; then boundaries, received and sent entries
    yield "fresh", repaired([0, 0, 0, 0, 1, 0, 0, 0], [])
    yield "of_two", repaired([*first, 3, 0, 5, 10, 2, 1, 2, 1, *own, 2, 0, 1], [0.5] * 10)
    yield "other_boundaries", repaired([*first, 4, 7, 2**64 - 1, 0, 1, 0, 0, *own, 0], [1] * 9)
    yield "bad_short", repaired([*first, 3, 0, 5], [])
    yield "bad_long", repaired([0, 0, 0, 0, 1, 0, 0, 0, 1], [])
    yield "bad_bytes", bytes([1]) + bytes(range(100))


def rounds():
    def note(what, edge, round_, who=0):
        return struct.pack("<IBBHQQiI", 1, what, edge, 0, round_, 0, who, 0)

    made, start, called, drained, left = range(5)
    for participation in range(4):
        runs = note(made, 0, 100) + note(start, 0, 1) + note(called, 0, 2) * 3 + note(start, 1, 3)
        ends = note(drained, 0, 4, 3) + note(left, 1, 4, 3)
        yield f"notes_{participation}", bytes([participation]) + runs + ends
    yield "bad_edge", bytes([1]) + note(start, 3, 1)
    yield "bad_kind", bytes([1]) + note(5, 0, 1)
    yield "bad_rank", bytes([2]) + note(left, 0, 1, 5)
    yield "bad_round", bytes([2]) + note(start, 0, 0)


def command_lines():
    yield "threads", "--transport\nthreads\n--ranks\n4\n--count\n16M\n--density\n0.1,1e-3\n--check\n--index\n64\n"
    yield "sim", "--latency\n2.5us\n--bandwidth\n100Gbit/s\n--compute\n1ns\n--jitter\n0\n--ranks-per-host\n2\n"
    yield "systems", "--systems=ring,ssar_split\n--type=double\n--pattern=zipf\n--iterations=3\n--seed=7\n"
    yield "help", "--help\n"
    for option, value in [
        ("latency", "-1us"),
        ("bandwidth", "1e308KB/s"),
        ("count", "1e308G"),
        ("density", "1.5"),
        ("iterations", "0"),
        ("ranks", "-4"),
    ]:
        yield f"bad_{option}", f"--{option}={value}\n"


def composition_texts():
    yield "system", "ok_topk:0.01:period=16:tau=3+coded:fast"
    yield "slots", "select=exact_topk:k=5,store=coo+qsgd:4:bucket=512,over=tree,by=dsar_split"
    yield "codec", "two_shot:piece=1024+zfp:7.25:threads=2"
    yield "bound", "dense+bound:error=0.5"
    for name, text in [
        ("option", "ok_topk:0.01:perod=3"),
        ("slot", "selct=gaussian"),
        ("parts", "ok_topk+qsgd:8"),
        ("number", "ok_topk:1e-400"),
    ]:
        yield f"bad_{name}", text


def stores():
    greeting, request, arrival, table, growth, asks, joiner = (bytes([i]) for i in range(7))  # what the target decodes

    def frame(kind, body):
        return struct.pack("<IB", len(body) + 1, kind) + body

    def hello(version=1, name=b"spar rendezvous", job=b"job"):
        return frame(1, name + struct.pack("<I", version) + bytes(range(32)) + job)

    def put(key, value):
        return frame(5, struct.pack("<H", len(key)) + key + value)

    def text(*parts):
        return b"".join(struct.pack("<I", len(p)) + p for p in parts)

    yield "hello", greeting + hello()
    yield "bad_hello_version", greeting + hello(version=2)
    yield "bad_hello_name", greeting + hello(name=b"SPAR rendezvous")
    yield "bad_hello_job", greeting + hello(job=bytes(257))
    yield "bad_http", greeting + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "requests", request + put(b"a", b"one") + frame(6, struct.pack("<I", 1000) + b"a") + put(b"b", b"")
    yield "bad_kind", request + frame(7, b"one")
    yield "bad_unknown_kind", request + frame(9, b"one")
    yield "bad_no_key", request + put(b"", b"one")
    yield "bad_long_key", request + put(bytes(1025), b"one")
    yield "bad_length", request + struct.pack("<IB", 1 << 31, 5) + b"one"
    yield "arrival", arrival + b"a" + text(b"0.1.0", b"job", b"process 1") + struct.pack("<I", 4) + b"text"
    yield "bad_arrival_size", arrival + b"a" + text(b"0.1.0", b"job", b"process 1") + struct.pack("<I", 0) + b"text"
    yield "bad_arrival_kind", arrival + b"t" + text(b"0.1.0", b"job", b"process 1") + struct.pack("<I", 4)
    yield "table", table + b"t" + text(b"one", b"", b"three")
    yield "bad_table", table + b"t" + text(b"one") + struct.pack("<I", 100) + b"two"
    yield "bad_refusal", table + b"mrank 1 expects 5 ranks"

    def decision(next_place, *ranks):
        return growth + b"t" + text(struct.pack("<Q", next_place), b"settings", *ranks)

    yield "growth", decision(3, b"rank 0", b"joiner")
    yield "bad_growth_place", decision(0, b"rank 0", b"joiner")
    yield "bad_growth_long_place", growth + b"t" + text(bytes(range(9)), b"settings", b"rank 0")
    yield "bad_growth_ranks", decision(3)
    yield "bad_growth_same", decision(3, b"rank 0", b"joiner", b"joiner")
    yield "joiner", joiner + b"text"
    yield "bad_joiner_text", joiner + b"x"
    yield "bad_joiner_version", asks + b"a" + text(b"0.0.0", b"", b"process 1") + struct.pack("<I", 1) + b"text"
    yield "bad_joiner_arrival", asks + b"text"


def ucx_messages():
    def message(head, payload=0, repaired=1, source=2, tag=8):
        return struct.pack("<BIIii", repaired, payload, 7, source, tag) + head

    def note(source=2, length=3):
        return struct.pack("<BBBBi52sI", 1, 1, length, 0, source, b"why", 0)

    def member(host, bytes_of_host, address=b"address", repaired=3):
        return struct.pack("<BIIiiiiI", repaired, 0, 0, 100, 1, 0, 0, bytes_of_host) + host + address

    dense = header(DENSE, 3, [array("f", [1, 2]), array("f", [3])])[:64]
    yield "short", message(short_header(b""), 12)
    yield "full", message(dense, 12)
    yield "note", message(note(), tag=-1)
    yield "member", member(b"host", 4)
    yield "bad_damaged", message(dense, 12, repaired=0)
    yield "bad_payload", message(dense, 13)
    yield "bad_short_payload", message(short_header(b""), 13)
    yield "bad_long_short", message(short_header(b""), 5000)
    yield "bad_version", message(header(SPARSE, 0, [], version=1))
    yield "bad_source", message(dense, 12, source=4)
    yield "bad_negative_source", message(dense, 12, source=-1)
    yield "bad_tag", message(dense, 12, tag=4096 * 8)
    yield "hello", message(b"", tag=-2)
    yield "bad_long_hello", message(b"xyz", tag=-2)
    yield "bad_negative_tag", message(dense, 12, tag=-3)
    yield "bad_longer", message(dense + bytes(4), 12)
    yield "bad_empty", message(b"")
    yield "bad_frame", message(b"")[:10]
    yield "bad_note_source", message(note(source=1), tag=-1)
    yield "bad_note_payload", message(note(), payload=1, tag=-1)
    yield "bad_note_length", message(note()[:60], tag=-1)
    yield "bad_note_text", message(note(length=53), tag=-1)
    yield "bad_member", member(b"host", 11)
    yield "bad_member_without_address", member(b"host", 4, b"")
    yield "bad_short_member", member(b"", 0, b"")[:24]
    yield "bad_damaged_member", member(b"host", 4, repaired=2)


TARGETS = {
    "envelope": envelopes,
    "stream": streams,
    "gathered": gathereds,
    "qsgd": qsgds,
    "codec": codecs,
    "mx": mxs,
    "packed": packeds,
    "zfp_field": zfp_fields,
    "coded": coded_entries,
    "control": controls,
    "collective": collectives,
    "pruned": pruneds,
    "rounds": rounds,
    "state": states,
    "store": stores,
    "ucx": ucx_messages,
    "command_line": command_lines,
    "composition_text": composition_texts,
}

for target, inputs in TARGETS.items():
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for name, data in inputs():
        if isinstance(data, str):
            (CORPUS / target / f"{name}.txt").write_text(data)
        else:
            (CORPUS / target / f"{name}.bin").write_bytes(data)
