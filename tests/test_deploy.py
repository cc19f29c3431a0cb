"""What deploy/, the Dockerfile and docs/deploy.md say fits the server, and fits each other."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import trio

from flashrt.cli import parser
from flashrt.serve import ENDINGS_S
from flashrt.settings import Settings, load
from flashrt.worker import STOPPING_S
from tests.source import ROOT, files
from tests.whole.server import fake_engine, running_server

KEY = {"FLASHRT_API_KEY": "a-key"}
PAGE = (ROOT / "docs" / "deploy.md").read_text()
UNIT = (ROOT / "deploy" / "flashrt.service").read_text()
SAMPLE = (ROOT / "deploy" / "flashrt.env").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD_TOOLS = ("gcc", "make", "cmake", "git", "curl", "build-essential", "python3-dev")


def unit(name: str) -> list[str]:
    """What the unit has for a directive, in its order."""
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def instructions() -> list[tuple[str, str]]:
    """(instruction, its text) of the Dockerfile, each in one line."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    code = [line for line in lines if line.strip() and not line.startswith("#")]
    return [(line.split()[0], " ".join(line.split()[1:])) for line in code]


def dockerfile(name: str) -> list[str]:
    """The texts of one kind of instruction."""
    return [text for kind, text in instructions() if kind == name]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions by stage; the image itself has no name."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = "before"
    for kind, text in instructions():
        if kind == "FROM":
            name = text.partition(" AS ")[2]
        found.setdefault(name, []).append((kind, text))
    return found


def image_environment() -> dict[str, str]:
    """What the image sets for every process."""
    last = " ".join(text for kind, text in stages()[""] if kind == "ENV")
    return dict(pair.split("=", 1) for pair in shlex.split(last))


def ours(environment: dict[str, str]) -> dict[str, str]:
    """The variables that the server reads."""
    return {name: value for name, value in environment.items() if name.startswith("FLASHRT_")}


def commands(language: str = "sh") -> list[str]:
    """The commands of the page, each in one line, without its comment."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.join(shlex.split(line, comments=True)) for line in lines]


def longest_stop_s(settings: Settings) -> float:
    """From the signal to the end of the process, if everything takes all of its time."""
    return settings.graceful_timeout_s + ENDINGS_S + settings.parking_s + STOPPING_S


def seconds_of(text: str) -> float:
    """A time span as systemd and Docker write it here."""
    number, letters = re.fullmatch(r"(\d+)(s|m|min|)", text).groups()
    return int(number) * (60 if letters.startswith("m") else 1)


# -- systemd -----------------------------------------------------------------------------------


def test_the_unit_starts_the_server_with_settings_that_exist():
    """Its command parses, its variables load, and its files are in folders that systemd makes."""
    environment = dict(pair.split("=", 1) for pair in unit("Environment"))
    (command,) = unit("ExecStart")
    settings = load({}, ours(environment))

    assert vars(parser().parse_args(shlex.split(command)[1:])) == {"command": "serve"}
    assert Path(settings.disk_capsule_dir).parent == Path("/var/lib") / unit("StateDirectory")[0]
    assert Path(settings.request_log).parent == Path("/var/log") / unit("LogsDirectory")[0]
    kernels = Path(environment["TRITON_CACHE_DIR"])
    assert kernels.parent == Path("/var/cache") / unit("CacheDirectory")[0]
    assert unit("WorkingDirectory") == [str(Path(settings.disk_capsule_dir).parent)]
    assert unit("User") != ["root"]


def test_the_unit_waits_longer_than_the_longest_stop():
    """Whatever a stop may take, systemd does not cut it short; and the page has the numbers."""
    longest = longest_stop_s(Settings())

    assert seconds_of(unit("TimeoutStopSec")[0]) > longest
    assert unit("KillSignal") == ["SIGTERM"]
    assert f"{longest:g} s at most" in PAGE
    assert f"takes {longest:g} s at most" in UNIT
    assert f"`TimeoutStopSec` is {unit('TimeoutStopSec')[0]}" in PAGE


def test_what_cannot_be_served_is_not_tried_again():
    """The status of a refused start is the one that the unit excepts."""
    command = [sys.executable, "-m", "flashrt", "serve", "--port", "x"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FLASHRT_")}
    refused = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, check=False)

    assert b"--port" in refused.stderr
    assert [str(refused.returncode)] == unit("RestartPreventExitStatus")


@pytest.mark.parametrize("uncommented", [False, True])
def test_the_sample_of_settings_loads(uncommented):
    """As it is, and with every line that waits for its value; so each name is a setting."""
    text = re.sub(r"^#(?=FLASHRT_)", "", SAMPLE, flags=re.MULTILINE) if uncommented else SAMPLE
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    settings = load({}, dict(line.split("=", 1) for line in lines))

    assert len(lines) == (4 if uncommented else 0)
    assert settings.has_keys == uncommented
    assert not re.search("['\"]", "".join(lines)), "docker would take the quotes for a part of it"


def test_the_page_installs_what_the_unit_names():
    """The program, the file of settings and the user are those of the unit."""
    written = "\n".join(commands())

    assert unit("ExecStart")[0].startswith("/opt/flashrt/bin/flashrt ")
    assert "python3 -m venv /opt/flashrt\n" in written
    assert f"install -D -m 600 deploy/flashrt.env {unit('EnvironmentFile')[0]}" in written
    assert f"useradd --system --home-dir {unit('WorkingDirectory')[0]}" in written
    assert f"nologin {unit('User')[0]}\n" in written


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    """`systemd-analyze verify`, the page's drop-in behind it, another program in place of ours."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("missing here: systemd-analyze")
    copy = tmp_path / "flashrt.service"
    drop_in = re.search(r"```ini\n(.*?)```", PAGE, re.DOTALL)[1]
    copy.write_text(UNIT.replace("/opt/flashrt/bin/flashrt", sys.executable) + drop_in)
    said = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)
    rated = subprocess.run(
        [analyze, "security", "--offline=true", copy], capture_output=True, text=True, check=False
    )

    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    (rating,) = re.findall(r"exposure level for \S+: ([\d.]+)", rated.stdout)
    assert float(rating) <= 2.5, "a line of the hardening was lost"


# -- Docker ------------------------------------------------------------------------------------


def test_the_image_is_made_of_files_that_exist_and_are_sent():
    """Each COPY names a file that .dockerignore lets through, and nothing else is let through."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules[1] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        name for kind, text in stages()["build"] if kind == "COPY" for name in text.split()[:-1]
    }

    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    assert {PROJECT["readme"], "pyproject.toml"} <= copied
    assert all(
        any(fnmatch(file, f"{name}*") for name in copied) for file in PROJECT["license-files"]
    )


def test_the_image_installs_what_the_project_names():
    """torch in the project's range, extras that it has, a Python that it runs on."""
    lines = " ".join(dockerfile("RUN"))
    (torch,) = [one for one in PROJECT["dependencies"] if one.startswith("torch")]
    bases = {text.split()[0] for text in dockerfile("FROM") if not text.startswith("run-")}
    ((major, minor),) = {re.search(r"python:(\d+)\.(\d+)-slim", base).groups() for base in bases}

    assert re.findall(r"'(torch[^']*)'", lines) == [torch]
    assert set(re.findall(r"'\.\[(\w+)\]'", lines)) <= set(PROJECT["optional-dependencies"])
    assert (int(major), int(minor)) >= tuple(
        map(int, re.findall(r"\d+", PROJECT["requires-python"]))
    )


def test_every_variant_that_the_page_builds_is_a_stage():
    """And the default is one."""
    built = {one for line in commands() for one in re.findall(r"VARIANT=(\w+)", line)}
    default = dockerfile("ARG")[0].partition("=")[2]

    assert {f"run-{name}" for name in {*built, default}} == {
        name for name in stages() if name.startswith("run-")
    }


def test_the_image_runs_as_nobody_special_and_without_build_tools():
    """Only the variant that needs a compiler has one; no instruction after USER goes back."""
    kept = {name: " ".join(map(" ".join, stages()[name])) for name in ("run-cpu", "run-cuda", "")}
    tools = {name: [t for t in BUILD_TOOLS if re.search(rf"\b{t}\b", kept[name])] for name in kept}

    assert tools == {"run-cpu": [], "run-cuda": ["gcc"], "": []}
    assert [text for kind, text in stages()[""] if kind == "USER"] == ["flashrt"]
    assert "useradd --system --uid 10001" in kept[""]
    assert "user\n  10001" in PAGE


def test_the_images_settings_load_and_its_files_are_in_the_volume():
    """It needs a key, since it listens to all; saved states and kernels outlive the container."""
    environment = image_environment()
    settings = load({}, {**ours(environment), **KEY})
    (volume,) = dockerfile("VOLUME")

    assert settings.host == "0.0.0.0"
    assert [str(settings.port)] == dockerfile("EXPOSE")
    assert Path(settings.disk_capsule_dir).is_relative_to(volume)
    assert f"TRITON_CACHE_DIR={volume}/" in " ".join(dockerfile("ENV"))
    assert dockerfile("WORKDIR")[-1] == volume
    assert json.loads(dockerfile("ENTRYPOINT")[0]) + json.loads(dockerfile("CMD")[0]) == [
        *("flashrt", "serve"),
    ]


def test_the_page_runs_the_image_as_it_wants_to_be_run():
    """The volume, the port and the file of settings are right, and a stop gets its time."""
    (run,) = [shlex.split(line) for line in commands() if line.startswith("docker run")]
    given = {flag: run[i + 1] for i, flag in enumerate(run) if flag.startswith("-")}
    volumes = [run[i + 1] for i, flag in enumerate(run) if flag == "-v"]

    assert float(given["--stop-timeout"]) > longest_stop_s(Settings())
    assert given["--env-file"] == unit("EnvironmentFile")[0]
    assert f"flashrt:{dockerfile('VOLUME')[0]}" in volumes
    assert given["-p"].rpartition(":")[2] == image_environment()["FLASHRT_PORT"]
    assert "--init" in run


async def test_the_images_health_check_tells_a_server_from_none():
    """The very command: 0 while it serves, something else where nobody answers."""
    *_, check = dockerfile("HEALTHCHECK")
    _, script, code = json.loads(check.partition("CMD ")[2])

    async def status(port: int) -> int:
        environment = {**os.environ, "FLASHRT_PORT": str(port)}
        command = [sys.executable, script, code]
        done = await trio.run_process(
            command, env=environment, capture_stderr=True, capture_stdout=True, check=False
        )
        return done.returncode

    async with running_server(fake_engine()) as server:
        port = server.address.port
        assert await status(port) == 0
    assert await status(port) != 0


# -- the page ----------------------------------------------------------------------------------


def test_every_flag_and_variable_of_these_files_exists():
    """No setting is named that `flashrt serve` does not have; of other programs only the known."""
    settings = (ROOT / "docs" / "settings.md").read_text()
    texts = [PAGE, UNIT, SAMPLE, (ROOT / "Dockerfile").read_text()]
    named = {one for text in texts for one in re.findall(r"FLASHRT_[A-Z_]+", text)}
    flags = set(re.findall(r"`(--[a-z-]+)`", PAGE)) - {"--init", "--stop-timeout"}

    assert {one for one in named if f"`{one}`" not in settings} == set()
    assert {one for one in flags if f"`{one}`" not in settings} == set()


def test_the_packages_data_is_in_the_wheel():
    """An image has no checkout: whatever is no module is named in pyproject's package data."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    named = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in tool["package-data"].items()
        for pattern in patterns
    ]
    inside = [str(file.relative_to(ROOT)) for file in files() if ROOT / "flashrt" in file.parents]
    data = [name for name in inside if not name.endswith(".py")]

    assert len(data) > 10
    assert [name for name in data if not any(fnmatch(name, one) for one in named)] == []
