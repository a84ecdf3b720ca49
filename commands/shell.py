"""`make shell`: the user's shell with the stack's python, pulumi, kubectl and namespace.

The user's own startup files run first, and may change PATH, KUBECONFIG and aliases. The startup files of this module
then set the stack's values. bash and zsh also restore the order of PATH before each prompt, because the user's prompt
hooks may change it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import yaml

from commands.environment import PROJECT, STATE, program_folder, stack_environment
from commands.stack import PulumiFailed, ensure_stack, kubeconfig_of, outputs, renew_kubeconfig
from infra.make_command import command_title, make_command
from stack.config import load_file

PROGRAMS = ("python", "python3", "pulumi", "kubectl")
"""Programs that the user's aliases and functions must not replace."""
RESTORE_PATH = """
_trainyard_path() {
    local folders=":$PATH:"
    folders=${folders//":$TRAINYARD_PATH_FIRST:"/:}
    folders=${folders//":$TRAINYARD_PATH_LAST:"/:}
    folders=${folders#:}
    folders="$TRAINYARD_PATH_FIRST:${folders%:}${TRAINYARD_PATH_LAST:+:$TRAINYARD_PATH_LAST}"
    [ "$folders" = "$PATH" ] || PATH=$folders
}
_trainyard_path
"""
"""Definition and call of a bash and zsh function that puts the stack's folders at both ends of PATH."""
BASH_PROMPT = """
# Before bash 5.1 only the first element of an array ran before a prompt.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
    PROMPT_COMMAND+=(_trainyard_path)
else
    PROMPT_COMMAND="${PROMPT_COMMAND:-}"$'\\n'_trainyard_path
fi
"""
ZSH_PROMPT = """
autoload -Uz add-zsh-hook
add-zsh-hook precmd _trainyard_path
"""


def start_files(
    shell: str, folder: Path, environment: Mapping[str, str], before: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Write the startup files of a shell into `folder`. Return its command line and more environment variables.

    `before` is the user's environment, `environment` the stack's. Other shells than bash, zsh, sh, dash, ksh, mksh and
    ash get no startup file.
    """
    path, own_path = environment["PATH"], before.get("PATH", "")
    # The stack's PATH consists of `first`, the user's PATH and `last`, in this order.
    first, _, last = path.partition(f"{os.pathsep}{own_path}") if own_path else (path, "", "")
    more = {"TRAINYARD_PATH_FIRST": first, "TRAINYARD_PATH_LAST": last.removeprefix(os.pathsep)}
    changed = {name: value for name, value in environment.items() if before.get(name) != value and name != "PATH"}
    stack = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (changed | more).items())
    stack = f"unalias {' '.join(PROGRAMS)} 2>/dev/null\nunset -f {' '.join(PROGRAMS)} 2>/dev/null\n{stack}"
    name, words, files = Path(shell).name, [shell], dict[str, str]()
    if name == "bash":
        files["bashrc"] = f"[ ! -r ~/.bashrc ] || . ~/.bashrc\n{stack}{RESTORE_PATH}{BASH_PROMPT}"
        words += ["--rcfile", str(folder / "bashrc")]
    elif name == "zsh":
        own = before.get("ZDOTDIR") or before.get("HOME", "")
        files[".zshenv"] = _zsh_file(".zshenv", own, folder)
        last_lines = f"ZDOTDIR={shlex.quote(own)}\n{stack}{RESTORE_PATH}{ZSH_PROMPT}"
        files[".zshrc"] = f"{_zsh_file('.zshrc', own, folder)}{last_lines}"
        more["ZDOTDIR"] = str(folder)
    elif name in ("sh", "dash", "ksh", "mksh", "ash"):
        own = before.get("ENV", "")
        rc = f"[ ! -r {shlex.quote(own)} ] || . {shlex.quote(own)}\n" if own else ""
        files["shrc"] = f"{rc}{stack}export PATH={shlex.quote(environment['PATH'])}\n"
        more["ENV"] = str(folder / "shrc")
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return words, more


def _zsh_file(name: str, own: str, folder: Path) -> str:
    """Return the first lines of a zsh startup file. They source the user's own file, with the user's own ZDOTDIR."""
    file = shlex.quote(f"{own}/{name}")
    return f"ZDOTDIR={shlex.quote(own)}\n[ ! -r {file} ] || . {file}\nZDOTDIR={shlex.quote(str(folder))}\n"


def context_file(files: list[str], context: str | None, namespace: str) -> str | None:
    """Return a kubeconfig with one context of `files` and with the namespace; None if the context is missing.

    If `context` is None, use the first current context in `files`.
    """
    contents = [content for file in files if (content := _kubeconfig(Path(file)))]
    name = context or next((each["current-context"] for each in contents if each.get("current-context")), None)
    found = (each for content in contents for each in content.get("contexts") or [] if each["name"] == name)
    chosen = next(found, None)
    if chosen is None:
        return None
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {**chosen["context"], "namespace": namespace}}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _kubeconfig(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def set_up_options() -> list[str]:
    """Return the options of the set-up. Only a stack with a cluster on this machine needs the cluster's programs."""
    file = PROJECT / f"Pulumi.{os.environ.get('STACK', 'local')}.yaml"
    with suppress(ValueError):
        if load_file(file, checks_availability=False).cloud.nodes_here:
            return []
    return ["--no-cluster"]


def main() -> NoReturn:
    """Replace this process with the shell."""
    stack = os.environ.get("STACK", "local")
    try:
        ensure_stack(stack)
        found = outputs(stack)
        renew_kubeconfig(stack, found)
        kubeconfig = kubeconfig_of(stack, found)
    except PulumiFailed as error:
        sys.exit(f"{command_title('shell')}: {error}")
    environment = {**stack_environment(), "TRAINYARD_SHELL": stack, "PULUMI_STACK": stack}
    folder = STATE / "shell" / stack
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    where = f"the stack is not up, so kubectl does not use its cluster; {make_command('up')} starts it"
    if kubeconfig:
        namespace, context = str(found.get("namespace") or "default"), found.get("context")
        environment["KUBECONFIG"] = with_namespace(kubeconfig, context, namespace, folder / "kubeconfig")
        where = f"kubectl uses namespace {namespace}"
    shell = environment.get("SHELL") or "/bin/sh"
    words, more = start_files(shell, folder, environment, os.environ)
    print(f"shell of stack {stack}: python and pulumi are the stack's, {where}; `exit` leaves the shell", flush=True)
    os.chdir(program_folder())
    try:
        os.execve(shell, words, {**environment, **more})
    except OSError as error:
        sys.exit(f"{command_title('shell')}: SHELL = {shell}: {error.strerror}; set SHELL to a shell of this machine")


def with_namespace(kubeconfig: str, context: str | None, namespace: str, file: Path) -> str:
    """Write the context to `file`. Return `kubeconfig` with `file` first, or unchanged if the context is missing.

    kubectl uses the current context of the first file:
    https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
    """
    text = context_file(kubeconfig.split(os.pathsep), context, namespace)
    if text is None:
        return kubeconfig
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    return f"{file}{os.pathsep}{kubeconfig}"


if __name__ == "__main__":
    main()
