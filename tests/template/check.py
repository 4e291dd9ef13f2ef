#!/usr/bin/env python3
"""Renders `template/` into a folder outside of the tree, and checks the service that comes out of it.

    tests/template/check.py              builds it, runs its tests, starts and stops it, and checks the files of deploy/
    tests/template/check.py --generate   compares the files with those that the real `cargo generate` writes

The first needs PyYAML. It uses `systemd-analyze` if there is one, and the PostgreSQL at the address in GREENROOM_POSTGRES.
"""

import os, re, shutil, signal, subprocess, sys, tempfile, urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
NAME = "made-up-service"
# Seconds between the end of the drain and the end of the process: five if a profile or a disk hangs, one for clients that do not
# read, one for tools that block a thread, and some for the system.
AFTER_THE_DRAIN = 10
# Ends a step that hangs; builds of a cold target folder take minutes.
LIMIT = 1800


def fail(why):
    sys.exit(f"template: {why}")


def run(command, **options):
    """Runs a command and returns its stderr, which is shown too."""
    print("--", *command, flush=True)
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT, **options)
    print(ended.stderr, end="", flush=True)
    if ended.returncode:
        fail(f"`{' '.join(command)}` failed with {ended.returncode}")
    return ended.stderr


def files(folder):
    """The contents by path, without `target/` and what cargo generate leaves out."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path): (folder / path).read_text() for path in found if str(path) != "cargo-generate.toml"}


def render(folder):
    """Fills in the placeholders, as cargo generate does."""
    for path, text in files(TEMPLATE).items():
        for placeholder, value in {"project-name": NAME, "greenroom": str(ROOT)}.items():
            text = text.replace("{{%s}}" % placeholder, value)
        left = re.search(r"\{\{.*|\{%.*", text)
        if left:
            fail(f"{path} has a placeholder that nothing fills in: {left[0]}")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def generate(folder):
    """The real cargo generate writes the same files."""
    render(folder / "rendered")
    command = ["cargo", "generate", "--path", str(TEMPLATE), "--name", NAME, "--destination", str(folder)]
    # Without the settings of the person who runs this.
    environment = {**os.environ, "CARGO_HOME": str(folder / "home")}
    run([*command, "--define", f"greenroom={ROOT}", "--vcs", "none", "--silent"], env=environment)
    rendered, generated = files(folder / "rendered"), files(folder / NAME)
    if rendered != generated:
        paths = rendered.keys() | generated.keys()
        differ = sorted(path for path in paths if rendered.get(path) != generated.get(path))
        fail(f"cargo generate writes other files: {differ}")
    print(f"cargo generate writes the same {len(generated)} files")


def cargo(folder, *arguments):
    """Runs cargo in the folder of the service, with the target folder of the tree and its builds of the dependencies."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "CARGO_INCREMENTAL": "0"}
    # As in the tree.
    return run(["cargo", "--config", 'profile.dev.package."*".debug=false', *arguments], cwd=folder, env=environment)


def build(folder):
    """Its tests pass, and it builds without them, without a warning. Returns its program."""
    # The versions of the tree.
    shutil.copy(ROOT / "Cargo.lock", folder)
    cargo(folder, "fmt", "--check")
    for command in ("test", "build"):
        if "warning:" in cargo(folder, command):
            fail(f"`cargo {command}` warns")
    return TARGET / "debug" / NAME


def start_and_stop(program, folder):
    """On a file and on PostgreSQL."""
    environment = {"PATH": os.environ["PATH"], "LISTEN": "127.0.0.1:0", "DATA_DIR": str(folder / "data")}
    refuses(program, environment, "API_KEYS")
    environment["API_KEYS"] = "acme:made-up"
    serves(program, environment)
    if "GREENROOM_POSTGRES" not in os.environ:
        print("GREENROOM_POSTGRES is not set: the service is not started on PostgreSQL")
        return
    environment["DATABASE_URL"] = os.environ["GREENROOM_POSTGRES"]
    refuses(program, environment, "FLEET_HOST")
    environment["FLEET_HOST"] = "here"
    serves(program, environment)


def refuses(program, environment, variable):
    """It does not start without a variable."""
    ended = subprocess.run([program], env=environment, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    if ended.returncode != 1 or variable not in ended.stderr:
        fail(f"without {variable} it ends with {ended.returncode}: {ended.stderr}")


def serves(program, environment):
    """It serves, and SIGTERM ends it with exit code 0."""
    with subprocess.Popen([program], env=environment, stdout=subprocess.PIPE, text=True) as service:
        try:
            # None: it has ended.
            listening = next((line for line in service.stdout if line.startswith("listening on ")), None)
            address = listening.split()[2] if listening else fail("it does not start")
            for health in ("ready", "live"):
                with urllib.request.urlopen(f"{address}/health/{health}", timeout=LIMIT) as answer:
                    print(f"{address}/health/{health}: {answer.status} {answer.read().decode()}")
            service.send_signal(signal.SIGTERM)
            status = service.wait(LIMIT)
        finally:
            service.kill()
    if status:
        fail(f"after SIGTERM it ends with {status}")
    print("SIGTERM: exit code 0")


def number(pattern, text):
    found = re.search(pattern, text)
    return int(found[1]) if found else fail(f"there is no `{pattern}`")


def deploy(folder, program):
    import yaml

    def read(path):
        return (folder / path).read_text()

    # The unit, with the program where it is.
    unit = read("deploy/systemd.service")
    if shutil.which("systemd-analyze"):
        (folder / f"{NAME}.service").write_text(unit.replace(f"/usr/local/bin/{NAME}", str(program)))
        said = run(["systemd-analyze", "verify", "--man=no", str(folder / f"{NAME}.service")])
        if NAME in said:
            fail("systemd-analyze finds fault with the unit")
    else:
        print("there is no systemd-analyze: the unit is not verified")

    documents = list(yaml.safe_load_all(read("deploy/kubernetes.yaml")))
    stateful = next(one for one in documents if one["kind"] == "StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probes = [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]
    if probes != ["/health/ready", "/health/live"]:
        fail(f"the probes ask for {probes}")
    if pod["securityContext"]["fsGroupChangePolicy"] != "OnRootMismatch":
        fail("a restart of the pod opens the lock folders to its group")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    service = next(one for one in documents if one["kind"] == "Service")
    if labels != stateful["spec"]["selector"]["matchLabels"] or labels != service["spec"]["selector"]:
        fail("the selectors do not choose the pods")
    if [mount["name"] for mount in container["volumeMounts"]] != [
        claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]
    ]:
        fail("the pods mount other volumes than they claim")

    end = number(r"const DRAIN: Duration = Duration::from_secs\((\d+)\)", read("src/main.rs")) + AFTER_THE_DRAIN
    given = {
        "TimeoutStopSec": number(r"\nTimeoutStopSec=(\d+)\n", unit),
        "terminationGracePeriodSeconds": pod["terminationGracePeriodSeconds"],
        "--stop-timeout": number(r"--stop-timeout (\d+) ", read("README.md")),
    }
    print(f"the service ends within {end} s of SIGTERM; it has {given}")
    short = [name for name, seconds in given.items() if seconds <= end]
    if short:
        fail(f"{short} give the service less time than it may need: {end} s")

    pinned = re.search(r"claude-code@([\d.]+)", (ROOT / "docs/cli-versions.md").read_text())[1]
    if f"ARG CLAUDE_VERSION={pinned}\n" not in read("Dockerfile") or f"claude-code@{pinned}`" not in read("README.md"):
        fail(f"the Dockerfile and the README install another CLI than {pinned}, the one of docs/cli-versions.md")


with tempfile.TemporaryDirectory() as scratch:
    folder = Path(scratch).resolve()
    if folder.is_relative_to(ROOT):
        fail(f"{folder} is inside of the tree")
    if sys.argv[1:] == ["--generate"]:
        generate(folder)
    elif sys.argv[1:]:
        fail(f"there is no {sys.argv[1:]}")
    else:
        service = folder / NAME
        service.mkdir()
        render(service)
        try:
            program = build(service)
            start_and_stop(program, service)
            deploy(service, program)
        finally:
            # Each run has another folder, so nothing of its package is used again.
            cargo(service, "clean", "--package", NAME)
