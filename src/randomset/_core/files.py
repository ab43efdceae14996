"""Files: written whole or not at all, and read with their format and version checked.

Tensors go into safetensors files, all else into JSON. Never pickle.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from randomset.errors import FileFormatError, RandomSetError, WriteError

__all__ = [
    "check_version",
    "check_writable",
    "expanded",
    "put_in_place",
    "read_document",
    "replacing",
    "save_tensors",
    "write_document",
]

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_ATTEMPTS = 20


def expanded(path: str | os.PathLike[str]) -> Path:
    """Write `~` out as the user's home folder; a name that only begins with it stays."""
    return Path(os.path.expanduser(path))


def check_writable(path: Path) -> None:
    """Raise before a long computation if its result could not be written to `path`; create its folder."""
    if path.is_dir():
        raise FileFormatError("the output path is a folder", got=str(path), expected="the name of a file")
    probe = path.parent / f".{path.name}.{os.getpid()}.part"
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink(missing_ok=True)
            return
        except OSError as error:  # another process may just have removed the folder
            if not attempts_left or not isinstance(error, (FileNotFoundError, FileExistsError)):
                raise WriteError("cannot write the output", path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file to write to; it takes the place of `path` once it is whole, or vanishes."""
    path = expanded(path)
    if not path.parent.is_dir() or path.is_dir():
        raise RandomSetError(
            "this is no place for a file" if path.is_dir() else "the folder does not exist",
            got=str(path if path.is_dir() else path.parent),
            remedy="Give the path of a file in a folder that exists",
        )
    try:
        handle, temporary = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    except OSError as error:
        raise WriteError("the folder cannot be written to", path.parent, error) from error
    os.close(handle)
    try:
        yield Path(temporary)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # a temporary file is its owner's alone
        put_in_place(temporary, path)
    except RandomSetError:
        raise
    except OSError as error:
        raise WriteError("the file cannot be written", path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def put_in_place(temporary: str | os.PathLike[str], path: Path) -> None:
    """Let a file take the place of another such that a power cut leaves one of them, and that one whole.

    The contents go to the disk before the name, and then the name; where a file system cannot do that, the
    file takes its place all the same.
    """
    with open(temporary, "rb+") as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:  # a disk that is full may say so only here
            if error.errno not in _NO_SYNC:
                raise
    os.replace(temporary, path)
    with suppress(OSError):  # some systems do not open folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def save_tensors(tensors: Mapping[str, Tensor], path: Path, header: dict[str, str] | None = None) -> None:
    """Write tensors by name, with texts beside them, as safetensors."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # Each is cloned: tensors that share their memory are written once for each name.
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(stored, temporary, metadata=header)
        except SafetensorError as error:  # what the disk says comes in its words
            raise OSError(str(error).rpartition("I/O error: ")[2]) from error


def write_document(content: Mapping[str, Any], path: Path, form: str, version: int, **layout: Any) -> None:
    """Write JSON that says its format and version first; `layout` goes to `json.dumps`."""
    text = json.dumps({"format": form, "version": version, **content}, ensure_ascii=False, **layout)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_document(path: Path, form: str, version: int, what: str) -> dict[str, Any]:
    """Read what `write_document` wrote; what is not JSON, of another format or of a newer version is refused.

    `what` names the thing in errors, such as "the threshold".
    """
    try:
        content = json.loads(expanded(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileFormatError(f"{what} cannot be read", got=f"{path}: {why}") from None
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found != form:
        raise FileFormatError(
            f"{what} cannot be read", got=f"{path} with format {_short(found)}", expected=f"format {form!r}"
        )
    check_version(content.get("version"), version, what, path)
    return content


def check_version(found: object, known: int | str, what: str, place: object = "") -> None:
    """Refuse what another version wrote; of a newer one, say so."""
    if found == known and not isinstance(found, bool):
        return
    try:
        newer = float(found) > float(known)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        newer = False
    raise FileFormatError(
        f"{what} was written by {'a newer version of randomset' if newer else 'another version'}",
        got=f"{f'{place}: ' if place else ''}version {_short(found)}",
        expected=f"version {known!r}",
        remedy="Update it: pip install --upgrade randomset" if newer else "Make it again",
    )


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists
        return type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"
