"""Files made wrong on purpose: bytes, JSON, safetensors and .npz archives, each by the draws of one seed."""

import io
import json
import struct
import zipfile

import numpy as np
import torch

STRANGE: list[object] = [
    *(None, True, False, 0, 1, -1, 2, 10**9, 10**15, 10**30, -(2**63), 2**63, 10**400, 0.5, -0.0, 1e308),
    *(
        float("nan"),
        float("inf"),
        -float("inf"),
        "",
        "a",
        "0",
        "../../etc/passwd",
        "\x00",
        "\ud800",
        "é" * 300,
    ),
    *([], [[]], {}, [None], [1, 2, 3], [1e400], {"": {}}, {"a": [1]}, [[1], [1, 2]], "nan", [""], ["a", "a"]),
    *(-(10**15), [10**9], [-1], [10**30], [0.5], "mlp", "hf:a", [2**31, 2**31], {"name": 1}),
]


def damaged(content, draw):
    """Flip, cut, insert, repeat or swap some bytes."""
    found = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 4, 16])):
        place = (
            draw.randrange(len(found) + 1)
            if draw.random() < 0.5
            else draw.randrange(min(len(found), 300) + 1)
        )
        kind = draw.randrange(7)
        if kind == 0 and place < len(found):
            found[place] ^= 1 << draw.randrange(8)
        elif kind == 1 and place < len(found):
            found[place] = draw.choice([0, 255, 127, 128, ord("9"), ord("-"), ord("{"), draw.randrange(256)])
        elif kind == 2:
            del found[place:]
        elif kind == 3:
            found[place:place] = bytes(draw.randrange(256) for _ in range(draw.choice([1, 2, 8, 100])))
        elif kind == 4:
            del found[place : place + draw.choice([1, 4, 50])]
        elif kind == 5:
            found[place:place] = found[place : place + draw.choice([1, 8, 200])]
        else:
            found[place : place + 4] = draw.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"9999"])
    return bytes(found)


def changed(value, draw):
    """Return JSON's content with one or several of its parts lost, added, or of another kind."""
    for _ in range(draw.choice([1, 1, 2, 3])):
        value = _changed(value, draw)
    return value


def _changed(value, draw):
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(list(value))
        kind = draw.random()
        if kind < 0.12:
            return {key: part for key, part in value.items() if key != name}
        if kind < 0.17:
            return {**value, draw.choice(["strange", "", "format", "version", "name"]): strange(draw)}
        return {**value, name: _changed(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        kind = draw.random()
        if kind < 0.15:
            return value[:place] + value[place + 1 :]
        if kind < 0.3:
            return [*value[: place + 1], *value[place:]]
        return [*value[:place], _changed(value[place], draw), *value[place + 1 :]]
    return strange(draw)


def strange(draw):
    """Return something that seldom stands in a file."""
    if draw.random() < 0.03:
        return _deep(draw.choice([50, 900]))
    return draw.choice(STRANGE)


def _deep(depth):
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


def json_text(value, draw):
    """Write JSON, now and then nested too deeply for any reader."""
    text = json.dumps(value, ensure_ascii=draw.random() < 0.8)
    if draw.random() < 0.03:
        text = text.replace("null", "[" * 100_000 + "]" * 100_000, 1) if "null" in text else "[" * 200_000
    return text.encode("utf-8", "surrogatepass")


def wrong_json(content, draw):
    """Make a JSON file wrong, in its bytes or in its content."""
    if draw.random() < 0.25:
        return damaged(content, draw)
    return json_text(changed(json.loads(content), draw), draw)


def wrong_safetensors(content, draw):
    """Make a safetensors file wrong: its bytes, its table of tensors, or the JSON that it carries."""
    kind = draw.random()
    if kind < 0.3:
        return damaged(content, draw)
    length = struct.unpack("<Q", content[:8])[0]
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    inner = header.get("__metadata__", {})
    if kind < 0.8 and inner:
        name = draw.choice(list(inner))
        try:
            inner[name] = json_text(changed(json.loads(inner[name]), draw), draw).decode("utf-8", "replace")
        except ValueError:
            inner[name] = str(strange(draw))
    elif kind < 0.95:
        header = changed(header, draw)
    else:
        rest = draw.choice([b"\xff", b"\x7f"]) * len(rest)  # numbers that are none, or huge
    text = json_text(header, draw)
    return struct.pack("<Q", len(text)) + text + rest


KINDS = ["<f4", ">f8", "<f2", "<i8", ">u2", "|u1", "|b1", "<c8", "<U5", "|S3", "|V4", "<M8[s]", "|O", "<f16"]


def wrong_npz(content, draw):
    """Make an archive wrong: its bytes, the names in it, or the headers of its arrays."""
    if draw.random() < 0.25:
        return damaged(content, draw)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [(name, archive.read(name)) for name in archive.namelist()]
    place = draw.randrange(len(parts))
    name, part = parts[place]
    kind = draw.randrange(8)
    if kind == 0:
        parts.pop(place)
    elif kind == 1:
        parts[place] = name, damaged(part, draw)
    elif kind == 2:
        parts[place] = name, draw.choice([b"", b"text", b"\x80\x04N.", part[:64]])
    elif kind == 3:
        parts.append((name.removesuffix(".npy"), part))
    elif kind == 4:
        parts[place] = name, _npy(_array(draw))
    else:
        shape = tuple(draw.choice([0, 1, 2, 5, 10**6, 10**12, 2**62, -1]) for _ in range(draw.randrange(5)))
        told = repr(draw.choice([shape, 3, "x", (1.5,), shape, shape]))
        turned = draw.random() < 0.5
        text = f"{{'descr': {draw.choice(KINDS)!r}, 'fortran_order': {turned}, 'shape': {told}, }}\n"
        if draw.random() < 0.1:
            text = "(" * draw.choice([10, 500, 9000]) + "\n"
        head = text.encode().ljust(118)
        parts[place] = name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + part[-200:]
    made = zipped(parts, draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    return damaged(made, draw) if draw.random() < 0.1 else made


def _array(draw):
    shape = tuple(draw.choice([0, 1, 2, 12, 20]) for _ in range(draw.randrange(5)))
    kind = draw.choice([kind for kind in KINDS if "O" not in kind])
    values = np.full(shape, draw.choice([0, 1, 3, 200]))
    try:
        found = values.astype(kind)
    except (TypeError, ValueError):
        found = np.zeros(shape, kind)
    if found.dtype.kind == "f" and found.size:
        with np.errstate(all="ignore"):
            found.flat[0] = draw.choice([np.nan, np.inf, 1e300, -5])
    return found


def _npy(array):
    made = io.BytesIO()
    np.save(made, array, allow_pickle=False)
    return made.getvalue()


def wrong_table(content, draw):
    """Make a table of comma-separated values wrong: its bytes, or its cells."""
    if draw.random() < 0.4:
        return damaged(content, draw)
    lines = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(draw.choice([1, 2, 5])):
        line = draw.choice(lines[:1] if draw.random() < 0.3 else lines)
        cell = draw.choice(
            ["", "x", "nan", "1e999", "-1", '"', "label", "1" * 400, "é", "\x00", "inf", "true", "1e300"]
        )
        if draw.random() < 0.6 and line:
            line[draw.randrange(len(line))] = cell
        elif draw.random() < 0.5:
            line.append(cell)
        elif line:
            line.pop()
    return "\n".join(map(",".join, lines)).encode()


def wrong_checkpoint(content, draw):
    """Make a checkpoint wrong: its bytes, the parts of its archive, sizes that it claims, or its content."""
    kind = draw.random()
    if kind < 0.2:
        return damaged(content, draw)
    if kind < 0.6:
        value = torch.load(io.BytesIO(content), weights_only=True)
        name = draw.choice([*value, "randomset", "randomset", "optimizer_states", "lr_schedulers", "loops"])
        value[name] = changed(_plain(value[name]), draw)
        made = io.BytesIO()
        try:
            torch.save(value, made)
        except RecursionError:  # lists in lists
            return damaged(content, draw)
        return made.getvalue()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [(name, archive.read(name)) for name in archive.namelist()]
    place = draw.choice([0, 0, draw.randrange(len(parts))])  # first comes the pickle
    name, part = parts[place]
    kind = draw.randrange(6)
    if kind == 0:
        parts.pop(place)
    elif kind == 1:
        parts.append((draw.choice([name.upper(), name + "x", "data.pkl"]), part))
    elif kind == 2:
        other = draw.randrange(len(parts))
        parts[place], parts[other] = (name, parts[other][1]), (parts[other][0], part)
    elif kind == 3:
        parts[place] = name, draw.choice([b"", part * 2, part[: len(part) // 2], b"\x80\x02N."])
    elif kind == 4:  # numbers, such as sizes and strides, that are larger
        large = draw.choice([b"M\xff\xff", b"J\xff\xff\xff\x7f", b"\x8a\x06\xff\xff\xff\xff\xff\x00"])
        small = b"K" + bytes([draw.choice([2, 3, 4, 7, 8, 12, 14, 32])])
        parts[place] = name, part.replace(small, large, draw.choice([-1, 1, 3]))
    else:
        parts[place] = name, damaged(part, draw)
    return zipped(parts, draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def zipped(parts, how=zipfile.ZIP_STORED):
    """Put parts into an archive, with the right checksums."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        for title, data in parts:
            archive.writestr(title, data)
    return made.getvalue()


def _plain(value):
    """Return mappings of every kind as dictionaries, in which something can be changed."""
    return dict(value) if isinstance(value, dict) else value
