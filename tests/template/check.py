#!/usr/bin/env python3
"""Renders `template/` into a folder outside of the tree, and checks the service that comes out of it.

    tests/template/check.py              builds it, runs its tests, starts and stops it, and checks the files of deploy/
    tests/template/check.py --generate   compares the files with those that the real `cargo generate` writes

The first needs PyYAML. It uses `systemd-analyze` if there is one, and makes a database on the PostgreSQL at the address in
GREENROOM_POSTGRES, with `psql`. GREENROOM_REQUIRE_SYSTEMD and GREENROOM_REQUIRE_POSTGRES make it fail without them.
"""

import contextlib, os, re, secrets, shutil, signal, socket, subprocess, sys, tempfile, threading, urllib.parse, urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
NAME = "made-up-service"
# Seconds between the end of the drain and the end of the process: five if a profile or a disk hangs, one for clients that do not
# read, one for tools that block a thread, and some for the system.
AFTER_THE_DRAIN = 10
# Limits for what hangs, in seconds. Builds of a cold target folder take minutes.
BUILD = 1800
START = 60
ANSWER = 10


def fail(why):
    sys.exit(f"template: {why}")


def run(command, **options):
    """Runs a command and returns its output, which is shown too."""
    print("--", *command, flush=True)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(command, text=True, timeout=BUILD, **pipes, **options)
    print(ended.stdout, end="", flush=True)
    if ended.returncode:
        fail(f"`{' '.join(command)}` failed with {ended.returncode}")
    return ended.stdout


def not_checked(what, missing, required):
    """Says what was not checked, or fails if it has to be."""
    if required in os.environ:
        fail(f"{missing}, and {required} is set")
    print(f"{missing}: {what}")


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
    said = {command: cargo(folder, command) for command in ("test", "build")}
    for command, text in said.items():
        if "warning:" in text:
            fail(f"`cargo {command}` warns")
    if not re.search(r"^test result: ok\. [1-9]\d* passed", said["test"], re.MULTILINE):
        fail("`cargo test` ran no test")
    return TARGET / "debug" / NAME


def start_and_stop(program, folder, limit):
    """On a file and on PostgreSQL. `limit`: the seconds from SIGTERM to the end."""
    environment = {"PATH": os.environ["PATH"], "LISTEN": "127.0.0.1:0", "DATA_DIR": str(folder / "data")}
    refuses(program, environment, "API_KEYS")
    environment["API_KEYS"] = "acme:made-up"
    serves(program, environment, limit)
    stops_during_the_start(program, {**environment, "FLEET_HOST": "here"}, limit)
    if "GREENROOM_POSTGRES" not in os.environ or not shutil.which("psql"):
        missing = "there is no GREENROOM_POSTGRES or no psql"
        return not_checked("the service is not started on PostgreSQL", missing, "GREENROOM_REQUIRE_POSTGRES")
    with database(os.environ["GREENROOM_POSTGRES"]) as environment["DATABASE_URL"]:
        refuses(program, environment, "FLEET_HOST")
        environment["FLEET_HOST"] = "here"
        serves(program, environment, limit)


@contextlib.contextmanager
def database(server):
    """A new database on the server, and its address. It is dropped at the end."""
    name = f"template_{secrets.token_hex(8)}"

    def command(sql):
        # The address may have a password, so it is not shown.
        said = subprocess.run(["psql", "--quiet", "--command", sql, server], timeout=START)
        if said.returncode:
            fail(f"psql failed with {said.returncode}: {sql}")

    command(f"CREATE DATABASE {name}")
    try:
        yield urllib.parse.urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        command(f"DROP DATABASE {name} WITH (FORCE)")


def refuses(program, environment, variable):
    """It does not start without a variable."""
    ended = subprocess.run([program], env=environment, stderr=subprocess.PIPE, text=True, timeout=START)
    if ended.returncode != 1 or f"`{variable}` is not set" not in ended.stderr:
        fail(f"without {variable} it ends with {ended.returncode}: {ended.stderr}")


@contextlib.contextmanager
def started(program, environment):
    """The program with its output in a pipe. Whatever happens, it has ended afterwards."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([program], env=environment, text=True, **pipes) as service:
        try:
            yield service
        finally:
            service.kill()


def ends(service, limit):
    """SIGTERM ends it in time with exit code 0, although nobody reads its output any more."""
    service.stdout.close()
    service.send_signal(signal.SIGTERM)
    status = service.wait(limit)
    if status:
        fail(f"after SIGTERM it ends with {status}")
    print("SIGTERM: exit code 0")


def serves(program, environment, limit):
    with started(program, environment) as service:
        # A service that hangs is killed, so its output ends.
        timer = threading.Timer(START, service.kill)
        timer.daemon = True
        timer.start()
        lines = []
        for line in service.stdout:
            lines.append(line)
            if "listening on " in line:
                break
        else:
            fail(f"it does not start: {''.join(lines)}")
        timer.cancel()
        address = lines[-1].split("listening on ")[1].strip()
        for health in ("ready", "live"):
            with urllib.request.urlopen(f"{address}/health/{health}", timeout=ANSWER) as answer:
                print(f"{address}/health/{health}: {answer.status} {answer.read().decode()}")
        ends(service, limit)


def stops_during_the_start(program, environment, limit):
    """SIGTERM ends it while it waits for a database that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(START)
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        environment["DATABASE_URL"] = f"postgres://{host}/none"
        with started(program, environment) as service, silent.accept()[0]:
            ends(service, limit)


def number(pattern, text):
    found = re.search(pattern, text)
    return int(found[1]) if found else fail(f"there is no `{pattern}`")


def deploy(folder, program):
    """Checks the files of deploy/, and returns the shortest time that a platform gives for a stop."""
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
        missing = "there is no systemd-analyze"
        not_checked("the unit is not verified", missing, "GREENROOM_REQUIRE_SYSTEMD")

    documents = list(yaml.safe_load_all(read("deploy/kubernetes.yaml")))
    stateful = next(one for one in documents if one["kind"] == "StatefulSet")
    pod = stateful["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probes = [container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")]
    if probes != ["/health/live", "/health/ready", "/health/live"]:
        fail(f"the probes ask for {probes}")
    if pod["securityContext"]["fsGroupChangePolicy"] != "OnRootMismatch":
        fail("a restart of the pod opens the lock folders to its group")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    services = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Service"}
    selectors = [stateful["spec"]["selector"]["matchLabels"], *(one["selector"] for one in services.values())]
    if [labels] * 3 != selectors:
        fail("the selectors do not choose the pods")
    if services[stateful["spec"]["serviceName"]]["clusterIP"] != "None":
        fail("the Service of the StatefulSet is not headless")
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

    limit = min(given.values())

    pinned = re.search(r"claude-code@([\d.]+)", (ROOT / "docs/cli-versions.md").read_text())[1]
    if f"ARG CLAUDE_VERSION={pinned}\n" not in read("Dockerfile") or f"claude-code@{pinned}`" not in read("README.md"):
        fail(f"the Dockerfile and the README install another CLI than {pinned}, the one of docs/cli-versions.md")
    return limit


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
            start_and_stop(program, service, deploy(service, program))
        finally:
            # Each run has another folder, so nothing of its package is used again.
            cargo(service, "clean", "--package", NAME)
