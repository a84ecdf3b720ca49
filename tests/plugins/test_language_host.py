"""Direct calls of the language host: which Python runs a program, and how a plugin in Python starts."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

from setup.stand_ins.host import ROOT, InterpreterMissing, program_environment, program_python


@pytest.fixture(scope="module")
def host() -> Iterator[language_pb2_grpc.LanguageRuntimeStub]:
    """Yield the running language host, started as Pulumi starts it."""
    command = [str(ROOT / "setup/stand_ins/bin/language/pulumi-language-python"), "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield language_pb2_grpc.LanguageRuntimeStub(channel)
        process.kill()


def program_info(folder: Path, **options: str) -> language_pb2.ProgramInfo:
    """Return a program in a folder. Without options, the program uses this project's environment."""
    program = language_pb2.ProgramInfo(root_directory=str(folder), program_directory=str(folder), entry_point=".")
    program.options.update(options or {"virtualenv": str(ROOT / ".venv")})
    return program


def test_run_plugin_streams_output_and_exit_code(host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(
        "import os, sys\nprint('out', *sys.argv[1:], os.environ['GIVEN'])\nprint('err', file=sys.stderr)\nsys.exit(3)\n"
    )
    request = language_pb2.RunPluginRequest(
        pwd=str(tmp_path), args=["a", "b"], env=["GIVEN=yes"], info=program_info(tmp_path), kind="resource"
    )
    answers = list(host.RunPlugin(request))
    assert b"".join(answer.stdout for answer in answers) == b"out a b yes\n"
    assert b"".join(answer.stderr for answer in answers) == b"err\n"
    assert answers[-1].exitcode == 3


def test_run_plugin_starts_a_policy_pack_with_the_policy_host(
    host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path
) -> None:
    (tmp_path / "__main__.py").write_text("import pulumi, sys\nprint('pulumi.policy' in sys.modules)\n")
    request = language_pb2.RunPluginRequest(
        pwd=str(tmp_path), args=["127.0.0.1:1"], info=program_info(tmp_path), kind="analyzer"
    )
    answers = list(host.RunPlugin(request))
    assert (b"".join(answer.stdout for answer in answers), answers[-1].exitcode) == (b"True\n", 0)


def test_about_and_dependencies_describe_the_program(
    host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path
) -> None:
    about = host.About(language_pb2.AboutRequest(info=program_info(tmp_path)))
    assert about.executable == str(ROOT / ".venv" / "bin" / "python")
    assert about.version.startswith("3.")
    listed = host.GetProgramDependencies(language_pb2.GetProgramDependenciesRequest(info=program_info(tmp_path)))
    assert "pulumi" in {dependency.name for dependency in listed.dependencies}


def test_missing_environment_is_named_in_the_error(host: language_pb2_grpc.LanguageRuntimeStub, tmp_path: Path) -> None:
    answer = host.Run(language_pb2.RunRequest(info=program_info(tmp_path, virtualenv="missing")))
    assert "'virtualenv' option in Pulumi.yaml is set to 'missing'" in answer.error


def test_program_python_with_another_toolchain_than_pip_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InterpreterMissing, match="toolchain = 'poetry'"):
        program_python(program_info(tmp_path, toolchain="poetry"))


def test_program_environment_excludes_this_project_from_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), "/elsewhere"]))
    environment = program_environment(ROOT / ".venv" / "bin" / "python")
    assert environment["PYTHONPATH"] == "/elsewhere"
    assert environment["VIRTUAL_ENV"] == str(ROOT / ".venv")
