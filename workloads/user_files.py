"""The user's files that a job gets: its script, its requirements, and its data in a folder or bucket."""

from __future__ import annotations

import ast
import hashlib
import os
import posixpath
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

from infra.project import CHECKOUT
from settings.problem import Invalid, Problem, token_kind
from workloads.spec import JobSpec

PROJECT_PREFIXES = ("./", "../")
"""Prefixes of the path of a file in the project. Any other path is in the image or in a mounted bucket."""
EXAMPLE_SCRIPTS = CHECKOUT / "images"
"""Folder of the scripts of the examples. A project outside of the checkout needs no copies of them."""
FOLDER_IN_POD = "/opt/script"
MAX_SCRIPT_BYTES = 900_000
"""Maximum size of a script with its neighbours in a ConfigMap. A ConfigMap holds 1 MiB with its metadata:
https://kubernetes.io/docs/concepts/configuration/configmap/"""
MAX_LAYER_BYTES = 50_000_000
"""Maximum size of a script with its neighbours in a layer of an image."""
FILE_NAME = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}")
"""Valid keys of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/"""
NOT_PYTHON_SUFFIX = re.compile(r"\.(?!(py|pyc|pyz|pyw|zip|whl|egg)$)[A-Za-z]+$")
"""Suffixes of files that Python cannot run. A name without a suffix may be a folder with a __main__.py."""
SOURCE_SUFFIXES = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt")
"""Suffixes of the files that pods get with a script: sources and settings, not data and weights."""
STACK_FILE = re.compile(r"Pulumi(\.[^.]+)?\.yaml")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
SCRIPT_REMEDY = "write a path in the image, such as /opt/train.py, or ./train.py for a file in the stack's folder"


def key_of(path: str) -> str:
    """Return the key of a file in a ConfigMap. Keys cannot contain `/`."""
    return path if FILE_NAME.fullmatch(path) else f"file-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, kw_only=True)
class UserScript:
    """Script of a user: a Python file of the project. Pods get it from a ConfigMap, without an image build.

    If the project is outside of the checkout, pods also get the script's neighbours: the source files next to it. Files
    that are too large for a ConfigMap become a layer of the job's image.
    """

    name: str
    text: str
    neighbours: Mapping[str, str] = field(default_factory=dict)
    """Content of the other files of its folder, by their path in the folder."""

    @property
    def files(self) -> dict[str, str]:
        """All files by their path."""
        return {self.name: self.text, **self.neighbours}

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum(len(text.encode()) for text in self.files.values())

    @property
    def needs_layer(self) -> bool:
        """True if the files are too large for a ConfigMap."""
        return self.num_bytes > MAX_SCRIPT_BYTES

    def size_error(self, limit: int, holder: str) -> Invalid:
        """Return the error for files that are too large for `holder`, which holds at most `limit` bytes."""
        if (script_bytes := len(self.text.encode())) > limit:
            size = f"has {script_bytes:,} bytes; at most {limit:,} are allowed"
            return Invalid("too_large", f"{size}; build an image with it")
        sizes = {name: len(each.encode()) for name, each in self.neighbours.items()}
        return _folder_error(script_bytes, sizes, limit, holder)

    @property
    def digest(self) -> str:
        """SHA-256 of all files."""
        digest = hashlib.sha256(f"{self.name} {self.text}".encode())
        for path, text in sorted(self.neighbours.items()):
            digest.update(f"\0{path}\0{text}".encode())
        return digest.hexdigest()

    @property
    def keys(self) -> dict[str, str]:
        """Key of each file in a ConfigMap, by its path."""
        return {path: key_of(path) for path in self.files}

    @property
    def paths(self) -> dict[str, str]:
        """Path of each file by its key; empty if keys and paths are the same."""
        found = {key: path for path, key in self.keys.items()}
        return {} if all(key == path for key, path in found.items()) else found

    def config_map(self, job: str) -> str:
        """Return the name of the job's ConfigMap. It changes with the content, so that an edit replaces the pods."""
        return f"{job}-script-{self.digest[:8]}"


def is_in_project(script: str) -> bool:
    """Return True if the path of a script is relative to the project: it begins with ./ or ../."""
    return script.startswith(PROJECT_PREFIXES)


def path_in_pod(script: str) -> str:
    """Return the path of a script in its pods."""
    return f"{FOLDER_IN_POD}/{PurePosixPath(script).name}" if is_in_project(script) else script


def path_error(script: str) -> Invalid | None:
    """Return the error in a script's path, or None if a Python file can have this path."""
    if "://" in script:
        return Invalid("url", f"is a URL; only paths of files are allowed; {SCRIPT_REMEDY}")
    if script.startswith("-"):
        return Invalid("option", f"is an option, not a path; {SCRIPT_REMEDY}")
    if script.startswith("~"):
        return Invalid("home", f"starts with ~, which no shell expands here; {SCRIPT_REMEDY}")
    if CONTROL_CHARACTERS.search(script):
        return Invalid("control_character", f"contains a control character; {SCRIPT_REMEDY}")
    if not is_in_project(script):
        if re.search(r"\s", script):
            return Invalid("blank", f"contains a space; {SCRIPT_REMEDY}, and its arguments as `args`")
        if NOT_PYTHON_SUFFIX.search(script):
            return Invalid("other_file", f"is not a Python file; {SCRIPT_REMEDY}")
        return None
    name = PurePosixPath(script).name
    if name.startswith("..") or not FILE_NAME.fullmatch(name):
        return Invalid(
            "file_name",
            "must have a file name of at most 253 letters, digits, '-', '_' and '.'; rename it, for example to "
            "train.py, and write arguments as `args`",
        )
    if not name.endswith(".py"):
        return Invalid("not_python", f"must have a name that ends in .py; {SCRIPT_REMEDY}")
    return None


def project_path(script: str, project: Path) -> str | None:
    """Return the path `./...` of a script if it is a file of the project, else None."""
    path = project / script
    if not path.is_file() or not path.resolve().is_relative_to(project.resolve()):
        return None
    return f"./{path.resolve().relative_to(project.resolve())}"


def read_script(script: str, project: Path, left_out: Collection[str] = ()) -> UserScript:
    """Return the script. Raises Invalid with the problem of the file and the remedy.

    `left_out` are the paths in the project that pods do not get with the script.
    """
    if not (project / script).exists() and (CHECKOUT / script).resolve().is_relative_to(EXAMPLE_SCRIPTS):
        project = CHECKOUT
    path = project / script
    if not path.resolve().is_relative_to(project.resolve()):
        raise Invalid("outside", f"is outside of {project}; copy the file there, or build an image with it")
    absent = f"is not a file of {project}; write a path relative to that folder, or a path in the image"
    text = _read_text(path, "", absent, "save it as UTF-8")
    other_inputs = {(project / each).resolve() for each in left_out}
    neighbours = {} if project.resolve() == CHECKOUT else _neighbours(path, other_inputs)
    script_files = UserScript(name=path.name, text=text, neighbours=neighbours)
    if script_files.num_bytes > MAX_LAYER_BYTES:
        raise script_files.size_error(MAX_LAYER_BYTES, "a layer of its image")
    return script_files


def check_syntax(script: UserScript, python_version: str) -> None:
    """Raise Invalid for the first syntax error of a script. Skip the check if this machine's Python is older."""
    major, minor = map(int, python_version.split("."))
    if (major, minor) > sys.version_info[:2]:
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(script.text.removeprefix("\ufeff"), feature_version=(major, minor))
    except SyntaxError as error:
        message = (
            f"has a syntax error for Python {python_version} in line {error.lineno}: {error.msg}; correct the line"
        )
        raise Invalid("syntax", message) from error


def _read_text(path: Path, code_prefix: str, absent: str, utf8_remedy: str) -> str:
    """Return the text of a file. Raises Invalid with a code that begins with `code_prefix`.

    `absent` is the message for a missing file, and `utf8_remedy` the remedy for one that is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Invalid(f"{code_prefix}absent", absent) from error
    except OSError as error:
        message = f"cannot be read ({error.strerror}); make the file readable"
        raise Invalid(f"{code_prefix}unreadable", message) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"{code_prefix}not_utf8", f"is not UTF-8 text; {utf8_remedy}") from error


def _folder_error(script_bytes: int, sizes: Mapping[str, int], limit: int, holder: str) -> Invalid:
    num_bytes = script_bytes + sum(sizes.values())
    largest = ", ".join(sorted(sizes, key=lambda name: -sizes[name])[:3])
    return Invalid(
        "folder_too_large",
        f"has {num_bytes:,} bytes together with the source files next to it, but {holder} holds {limit:,}; "
        f"the largest of these are {largest}; move files that the job does not need to another folder, or build an "
        "image",
    )


def _neighbours(script: Path, left_out: Collection[Path]) -> dict[str, str]:
    """Return the other source files in the folder of a script and below, by path, without the files in `left_out`."""
    folder = script.parent.resolve()
    files = [file for file in source_files(folder, left_out) if file != folder / script.name]
    # Check the sizes before any file is read: the files may be larger than the memory.
    sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files if file.exists()}
    if sum(sizes.values()) > MAX_LAYER_BYTES:
        raise _folder_error(script.stat().st_size, sizes, MAX_LAYER_BYTES, "a layer of its image")
    found = {}
    for file in files:
        try:
            found[file.relative_to(folder).as_posix()] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(
                "neighbour",
                f"pods get the files next to it, but {file} is not readable UTF-8 text; move that file elsewhere",
            ) from error
    return found


def source_files(folder: Path, left_out: Collection[Path] = ()) -> Iterator[Path]:
    """Yield the source files of a folder, sorted. Leave out hidden folders, caches, environments and `left_out`."""
    for place, folders, names in os.walk(folder, followlinks=True):
        paths = {name: Path(place) / name for name in sorted(folders)}
        folders[:] = [
            name
            for name, path in paths.items()
            if not _is_left_out(path) and not _should_skip_link(path, folder) and path.resolve() not in left_out
        ]
        for name in sorted(names):
            path = Path(place) / name
            is_source = name.endswith(SOURCE_SUFFIXES) and not name.startswith(".") and not STACK_FILE.fullmatch(name)
            if is_source and path.resolve() not in left_out:
                yield path


def _is_left_out(folder: Path) -> bool:
    """Return True for a hidden folder or a tool's folder, such as a virtual environment.

    Tools put a `.gitignore` with the line `*` into such a folder.
    """
    if folder.name.startswith(".") or folder.name == "__pycache__":
        return True
    if (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir():
        return True
    ignored = folder / ".gitignore"
    return ignored.is_file() and "*" in ignored.read_text(encoding="utf-8", errors="replace").split()


def _should_skip_link(path: Path, top: Path) -> bool:
    """Return True for a link to a folder that has no Python file, such as data, or that contains the link itself."""
    if not path.is_symlink():
        return False
    target = path.resolve()
    parents = [each.resolve() for each in path.parents if each.is_relative_to(top)]
    return not any(target.glob("*.py")) or any(each.is_relative_to(target) for each in parents)


MAX_REQUIREMENTS_BYTES = 64_000
"""Maximum size of a requirements file. With hashes, about 30 packages have this size."""
_REMEDY = "write a path relative to the folder of the stack's file, such as requirements.txt"
_OTHER_FILE = re.compile(r"-[rce]|--(requirement|constraint|editable)\b|\.{0,2}/|\.$|file:|.*@\s*file:")
"""Line that refers to another file. The build of the image has no other files."""
_COMMENT = re.compile(r"(^|\s)#.*")
_OPTION = re.compile(r"\s-")
"""Beginning of an option after a package, such as `--hash`."""
_PACKAGE = re.compile(r"[A-Za-z0-9]")
"""Beginning of a line with a package. Other lines are options."""


def read_requirements(requirements: str, project: Path) -> str:
    """Return the content of a requirements file. Raises Invalid with the problem of the file and the remedy."""
    if "://" in requirements or requirements.startswith("~"):
        raise Invalid("requirements_url", f"is not the path of a file of the project; {_REMEDY}")
    path = project / requirements
    if not path.resolve().is_relative_to(project.resolve()):
        raise Invalid("requirements_outside", f"is outside of {project}; copy the file there, and {_REMEDY}")
    absent = f"is not a file of {project}; {_REMEDY}"
    text = _read_text(path, "requirements_", absent, "write one package a line, such as einops==0.8.1")
    num_bytes = len(text.encode())
    if num_bytes > MAX_REQUIREMENTS_BYTES:
        size = f"has {num_bytes:,} bytes; at most {MAX_REQUIREMENTS_BYTES:,} are allowed"
        raise Invalid("requirements_too_large", f"{size}; list fewer packages, or leave out hashes")
    _check_lines(text)
    return text


def _check_lines(text: str) -> None:
    lines = [_COMMENT.sub("", line).strip() for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise Invalid(
                "requirements_control_character", f"line {number} contains a control character; remove the character"
            )
        if _OTHER_FILE.match(line):
            message = f"line {number} refers to another file, which is not in the image; write packages instead"
            raise Invalid("requirements_other_file", message)
    if noun := token_kind(text):
        message = f"contains {noun} in plain text; install the package in an image of your own (`image`)"
        raise Invalid("requirements_secret", message)
    for number, line in _packages(lines):
        _check_package(number, line)
    if not any(_PACKAGE.match(line) for line in lines):
        raise Invalid(
            "requirements_empty", "lists no package; add one a line, such as einops==0.8.1, or remove this key"
        )


def _packages(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line with a package. Join continued lines and leave out options."""
    first, parts = 0, list[str]()
    for number, line in enumerate(lines, start=1):
        first = first if parts else number
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        text = _OPTION.split(" ".join(parts), maxsplit=1)[0].strip()
        parts.clear()
        # pip also accepts URLs and variables. The build of the image checks them.
        if _PACKAGE.match(text) and "://" not in text and "${" not in text:
            yield first, text


def _check_package(number: int, line: str) -> None:
    try:
        Requirement(line)
    except InvalidRequirement as error:
        raise Invalid(
            "requirements_syntax",
            f"line {number} is {line[:60]!r}, which is not a package in pip's format; write it as in einops==0.8.1",
        ) from error


DATA_VARIABLE = "TRAINYARD_DATA"
"""Environment variable of pods with the path or URL of the job's data. The recipes read it too."""
DATA_PATH = "/data"
"""Path of the data in pods, if it is a folder of this machine."""
BUCKET_REFERENCE = "$(TRAINYARD_BUCKET)"
"""Reference to the variable with the URL of the stack's bucket. Kubernetes expands it in a pod."""
HIDDEN_FOLDERS = ("/dev", "/proc", "/run", "/sys", "/var/lib", "/var/log")
"""Folders of this machine that nodes hide or replace (infra/local/node.py)."""
USER = 1000
"""User and group of the pods (workloads/objects.py)."""
_URL = re.compile(r"(gs|s3)://[a-z0-9][-._a-z0-9]{1,220}(/[^?#*\x00-\x20\x7f]*)?")
_BUCKET_PATH = re.compile(r"[^/?#*:\x00-\x20\x7f][^?#*:\x00-\x20\x7f]*")


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Location of a job's data."""

    location: str
    """Value of DATA_VARIABLE in its pods."""
    folder: Path | None = None
    """Folder of this machine to mount at DATA_PATH; None for data in a bucket."""


def data_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each flag that `data` sets or contradicts."""
    if spec.data is None or spec.recipe is None:
        return
    if value := spec.flag("data_dir"):
        key = next(name for name in spec.flags if name.replace("-", "_") == "data_dir")
        message = "is set by the job's `data`; remove one of the two"
        yield Problem("job.data_dir.also_data", ("flags", key), message, value)
    if spec.flag("fake_data") is True:
        message = "has no effect on synthetic images; remove this key, or remove the flag `fake_data`"
        yield Problem("job.data.with_synthetic_images", ("data",), message, spec.data)


def generates_images(spec: JobSpec) -> bool:
    """Return True if the recipe `imagenet` generates its images. By default it does, unless the job has `data`."""
    fake = spec.flag("fake_data")
    return fake is not False and (fake is not None or spec.data is None)


def data_flags(spec: JobSpec) -> tuple[str, ...]:
    """Return the flags of a recipe that `data` sets. Kubernetes expands the variable in them."""
    if spec.data is None or spec.recipe is None:
        return ()
    reads_files = spec.recipe == "imagenet" and spec.flag("fake_data") is None
    return (f"--data-dir=$({DATA_VARIABLE})", *(["--no-fake-data"] if reads_files else []))


def folder_source(data: str, project: Path) -> DataSource:
    """Return the data in a folder of this machine, relative to the project. Raises Invalid."""
    if "://" in data:
        message = "is a URL, which pods on this machine cannot reach; write a folder of this machine, such as ./data"
        raise Invalid("data_url_on_local", message)
    if data.startswith("~"):
        raise Invalid("data_home", f"starts with ~, which no shell expands here; write {Path(data).expanduser()}")
    folder = (project / data).resolve()
    if not folder.is_dir():
        message = f"is not a folder: {folder} does not exist or is a file; create it, or write another, such as ./data"
        raise Invalid("data_absent", message)
    hidden = next((each for each in HIDDEN_FOLDERS if folder.is_relative_to(each)), None)
    if hidden or folder == Path("/"):
        place = f"in {hidden}" if hidden else "the root folder"
        raise Invalid(
            "data_hidden", f"is {place}, which nodes on this machine do not share; copy the data to another folder"
        )
    if not _is_readable(folder):
        raise Invalid("data_unreadable", f"{folder} is not readable for the user of pods; run `chmod -R a+rX {folder}`")
    return DataSource(location=DATA_PATH, folder=folder)


def _is_readable(folder: Path) -> bool:
    """Return True if the user of pods can list and enter a folder. Do not check its files and its parent folders."""
    found = folder.stat()
    shift = 6 if found.st_uid == USER else 3 if found.st_gid == USER else 0
    return (found.st_mode >> shift) & 0o5 == 0o5


def bucket_source(spec: JobSpec, data: str, *, bucket_folder: str | None) -> DataSource:
    """Return the data in a bucket. Raises Invalid.

    `bucket_folder` is the path of the stack's bucket in pods, or None if the bucket is an object store.
    """
    if data.startswith(("/", "./", "../", "~")) or posixpath.normpath(data).startswith(".."):
        raise Invalid(
            "data_folder_in_cloud",
            "is a folder of this machine, which the nodes of this platform cannot mount; copy it into the stack's "
            f"bucket (docs/data.md) and write its path there, `data: {_example(data)}`, or write a gs:// or s3:// URL",
        )
    if "://" in data:
        if not _URL.fullmatch(data) or "::" in data:
            raise Invalid(
                "data_url", "must be the URL of a folder in a bucket; write gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
            )
    elif not _BUCKET_PATH.fullmatch(data):
        raise Invalid(
            "data_bucket_path", "must be a path in the stack's bucket without spaces, '?', '#', '*' and ':'; rename it"
        )
    if spec.recipe == "digits" and ("://" in data or bucket_folder is None):
        raise Invalid(
            "digits_in_bucket",
            "recipe digits reads a folder, not a bucket; the digits are in the image; remove this key",
        )
    if "://" in data:
        return DataSource(location=data)
    return DataSource(location=f"{BUCKET_REFERENCE if bucket_folder is None else bucket_folder}/{data.strip('/')}")


def _example(data: str) -> str:
    return posixpath.basename(posixpath.normpath(data)).strip("~.") or "data"
