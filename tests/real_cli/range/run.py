"""Runs the tests on the real CLI against published versions of it, and writes `docs/cli-versions.md`.

    python3 tests/real_cli/range/run.py            runs the versions of `versions.tsv`, and writes the page
    python3 tests/real_cli/range/run.py --check    the same, and fails if the committed page says something else
    python3 tests/real_cli/range/run.py --choose   chooses versions of the last 90 days, and writes `versions.tsv`
    python3 tests/real_cli/range/run.py --page     writes the page from the results of the last runs
    python3 tests/real_cli/range/run.py 2.1.299    runs this version alone, and writes no page

It needs cargo and npm. Each version is installed into `.cli/range/`, which git ignores, and removed after its tests;
`--keep` leaves it there. `differences.txt` has a sentence for each test that
fails with an older version. Another test that fails is run again alone, twice at most. If it still fails, the run fails. A
version below the oldest supported one, `OLDEST_CLI` in the sources, has to be refused by `start()`, and is then allowed.
"""

import argparse
import difflib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from datetime import date, timedelta

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
VERSIONS, DIFFERENCES = HERE / "versions.tsv", HERE / "differences.txt"
PAGE = ROOT / "docs" / "cli-versions.md"
CLIS = ROOT / ".cli" / "range"
MINIMUM = ROOT / "src" / "options" / "runtime" / "process.rs"

DAYS, OTHERS = 90, 11
THREADS, SUITE_LIMIT, TEST_LIMIT = 4, 2400, 600
# The test that a refused CLI has to fail, and what its error says.
STARTS, REFUSAL = "basics::handshake_by_initialize_and_a_call", "the oldest version that greenroom supports"


def fail(text):
    sys.exit(f"range: {text}")


def platform_package():
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"@anthropic-ai/claude-agent-sdk-{sys.platform}-{machine}"


def number(version):
    return [int(part) for part in version.split(".")]


def cli_version(package_version):
    """0.3.330 is the package of the CLI 2.1.330. `install` compares it with what the CLI says."""
    return f"2.1.{number(package_version)[2]}"


def pinned():
    """The version of the package that the checks install."""
    for file in sorted((ROOT / ".ci").iterdir()):
        if found := re.search(r"^sdk_version=(\S+)$", file.read_text(), re.M):
            return cli_version(found.group(1))
    fail("no file in .ci has `sdk_version=`")


def oldest():
    found = re.search(r'OLDEST_CLI: &str = "([\d.]+)"', MINIMUM.read_text())
    return found.group(1) if found else fail(f"{MINIMUM.relative_to(ROOT)} has no OLDEST_CLI")


def table(path):
    lines = path.read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def choose():
    """The pinned version, others that are spread evenly over the days before it, and the oldest supported one."""
    shown = subprocess.run(["npm", "view", platform_package(), "time", "--json"], capture_output=True, check=True)
    times = json.loads(shown.stdout)
    published, newest_first = {}, sorted((v for v in times if re.fullmatch(r"0\.\d+\.[1-9]\d*", v)), key=number, reverse=True)
    latest = date.today().isoformat()
    for version in newest_first:
        # Some versions were uploaded again later. No version is younger than the next one.
        latest = min(latest, times[version][:10])
        published[version] = latest
    last = next(version for version in newest_first if cli_version(version) == pinned())
    end, first_day = date.fromisoformat(published[last]), date.today() - timedelta(days=DAYS)
    chosen = [last]
    for step in range(OTHERS - 1, -1, -1):
        day = (first_day + (end - first_day) * step / OTHERS).isoformat()
        chosen.append(min((version for version in published if published[version] >= day), key=number))
    chosen += [version for version in published if cli_version(version) == oldest()]
    rows = sorted(set(chosen), key=number, reverse=True)
    head = "# The CLI, its package, and the day of its publication. `run.py --choose` writes this file.\n"
    VERSIONS.write_text(head + "".join(f"{cli_version(row)}\t{row}\t{published[row]}\n" for row in rows))


def install(version, package_version):
    folder = CLIS / version
    executable = folder / "node_modules" / platform_package() / "claude"
    if not executable.exists():
        folder.mkdir(parents=True, exist_ok=True)
        package = f"{platform_package()}@{package_version}"
        npm = ["npm", "install", "--prefix", folder, "--cache", CLIS / "npm", "--no-audit", "--no-fund", package]
        subprocess.run(npm, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(CLIS / "npm", ignore_errors=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "DISABLE_AUTOUPDATER": "1"}
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, env=env, check=True).stdout
    if said.split()[0] != version:
        fail(f"{platform_package()}@{package_version} is the CLI {said.strip()}, and not {version}")
    return executable


def build():
    """The binary of the tests on the real CLI. The crate of fleets has tests of the same name."""
    command = ["cargo", "test", "--test", "real_cli", "--no-run", "--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        fail("the tests could not be built")
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    own = [m for m in messages if m.get("executable") and m["manifest_path"] == str(ROOT / "Cargo.toml")]
    return next(m["executable"] for m in own if m["target"]["name"] == "real_cli")


def run(binary, executable, *arguments, limit):
    env = {
        **os.environ,
        "GREENROOM_CLI": str(executable),
        "GREENROOM_REQUIRE_CLI": "1",
        # Cargo sets it for tests, and one of them looks for it.
        "CARGO_MANIFEST_DIR": str(ROOT),
    }
    command = ["timeout", "--kill-after=10", str(limit), binary, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, errors="replace", capture_output=True, stdin=subprocess.DEVNULL)
    return done.stdout, dict(re.findall(r"^test (\S+) \.\.\. (ok|FAILED)$", done.stdout, re.M))


def suite(binary, executable, tests, known):
    """The tests that fail, with what they say."""
    output, results = run(binary, executable, "--test-threads", str(THREADS), limit=SUITE_LIMIT)
    failed = {}
    for test in tests:
        if results.get(test) == "ok":
            continue
        failed[test] = output
        # A difference that is known needs no second look; anything else may be a matter of the load.
        for _ in range(0 if test in known else 2):
            failed[test], again = run(binary, executable, "--exact", test, limit=TEST_LIMIT)
            if again.get(test) == "ok":
                del failed[test]
                break
    return failed


def result(binary, tests, version, package_version, given):
    """The tests that fail with this version, with what they say."""
    stored = CLIS / f"{version}.json"
    if given.page:
        return json.loads(stored.read_text()) if stored.exists() else fail(f"{version} has not been run")
    executable = install(version, package_version)
    if number(version) < number(oldest()):
        output, _ = run(binary, executable, "--exact", STARTS, limit=TEST_LIMIT)
        if REFUSAL not in output or version not in output:
            fail(f"{version} is too old, and `start()` did not say so:\n{said(STARTS, output)}")
        # From here on, the tests allow it.
        os.environ["GREENROOM_ALLOW_OLD_CLI"] = "1"
    known = {test for test in tests if difference(test, version)}
    failed = {test: said(test, output) for test, output in suite(binary, executable, tests, known).items()}
    for row in KNOWN:
        if row.sometimes and row.covers(row.test, version):
            failed.setdefault(row.test, "")
    os.environ.pop("GREENROOM_ALLOW_OLD_CLI", None)
    stored.write_text(json.dumps(failed, indent=1))
    if not given.keep:
        shutil.rmtree(CLIS / version)
    return failed


def said(test, output):
    """What the test said when it panicked. A tool of the test may have panicked before."""
    own = output.partition(f"---- {test} stdout ----")[2]
    panics = re.findall(r"panicked at (.*?)(?:^stack backtrace|^note: run with|^---- |\Z)", own, re.M | re.S)
    return "\n".join((panics[-1] if panics else output[-2000:]).splitlines()[:8])[:1200]


class Difference:
    """A test that fails with the versions from `first` to `last`, and the sentence that says why."""

    def __init__(self, sentence, line):
        self.sentence = sentence
        self.test, versions, *self.sometimes = line.split()
        self.first, self.last = versions.split("..")

    def covers(self, test, version):
        after = not self.first or number(version) >= number(self.first)
        return self.test == test and after and number(version) <= number(self.last)


def differences():
    found, sentence = [], None
    for line in DIFFERENCES.read_text().splitlines():
        if line.startswith(" "):
            found.append(Difference(sentence, line))
        elif line and not line.startswith("#"):
            sentence = line
    return found


KNOWN = differences()


def difference(test, version):
    """The sentence about a test that fails with this version."""
    return next((known.sentence for known in KNOWN if known.covers(test, version)), None)


def page(rows, results, total):
    """The page, from `page.md`."""
    found = {version: {difference(test, version) for test in results[version]} for version, *_ in rows}
    sentences = [sentence for sentence in dict.fromkeys(row.sentence for row in KNOWN) if any(sentence in of for of in found.values())]
    lines, explained = [], []
    for version, _, day in rows:
        notes = ["pinned"] if version == pinned() else ["refused"] if number(version) < number(oldest()) else []
        differs = ", ".join(str(index) for index, sentence in enumerate(sentences, 1) if sentence in found[version])
        lines.append(f"| {', '.join([version, *notes])} | {day} | {total - len(results[version])} of {total} | {differs or 'nothing'} |")
    for index, sentence in enumerate(sentences, 1):
        versions = [version for version, *_ in rows if sentence in found[version]]
        reach = versions[0] if len(versions) == 1 else f"{versions[-1]} to {versions[0]}"
        explained.append(f"{index}. {reach}: {sentence}")
    values = {"OLDEST": oldest(), "PINNED": pinned(), "TOTAL": str(total), "VERSIONS": "\n".join(lines), "DIFFERENCES": "\n".join(explained)}
    return re.sub(r"\{([A-Z]+)\}", lambda found: values[found[1]], (HERE / "page.md").read_text())


def without_totals(text):
    """A new test that holds everywhere changes no statement of the page but the counts."""
    text = re.sub(r"(\d+) of (\d+) \|", lambda m: f"all but {int(m[2]) - int(m[1])} |", text)
    return re.sub(r"\b\d+ tests\b", "all tests", text)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("versions", nargs="*", help="run these alone, and write no page")
    options.add_argument("--choose", action="store_true", help="write `versions.tsv`")
    options.add_argument("--check", action="store_true", help="fail if the committed page says something else")
    options.add_argument("--page", action="store_true", help="take the results of the last runs")
    options.add_argument("--keep", action="store_true", help="leave the CLIs in .cli/range")
    options.add_argument("--binary", help="the built tests, if cargo is not to build them")
    given = options.parse_args()
    if given.choose:
        return choose()
    rows = table(VERSIONS)
    if pinned() not in [row[0] for row in rows]:
        fail(f"{VERSIONS.name} does not have the pinned version {pinned()}: run this with --choose")
    if given.versions:
        rows = [row for row in rows if row[0] in given.versions] or fail(f"{VERSIONS.name} has no such version")
    binary = given.binary or build()
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    tests = re.findall(r"^(\S+): test$", listed, re.M)
    results, unexplained = {}, []
    for version, package_version, _ in rows:
        failed = results[version] = result(binary, tests, version, package_version, given)
        print(f"{version}: {len(tests) - len(failed)} of {len(tests)} tests hold", flush=True)
        for test, output in failed.items():
            sentence = difference(test, version)
            print(f"  {test}: {sentence or output}", flush=True)
            if sentence is None or version == pinned():
                unexplained.append(f"{version}: {test}")
    if unexplained:
        fail(f"{DIFFERENCES.name} has no sentence about, or the pinned version fails:\n" + "\n".join(unexplained))
    if given.versions:
        return
    unused = [row.test for row in KNOWN if not any(row.covers(row.test, version) and row.test in results[version] for version in results)]
    if unused:
        fail(f"{DIFFERENCES.name} has tests that hold with these versions: " + ", ".join(unused))
    text, committed = page(rows, results, len(tests)), PAGE.read_text() if PAGE.exists() else ""
    PAGE.write_text(text)
    before, after = without_totals(committed), without_totals(text)
    if given.check and before != after:
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "committed", "found"))
        fail(f"{PAGE.relative_to(ROOT)} said something else. It is written anew: look at it and commit it")


if __name__ == "__main__":
    main()
