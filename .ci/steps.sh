# The steps of `.ci/run` and `.ci/long`, which source this file. A step is a function `step_NAME`; the name of the step has
# hyphens where the function has underscores. A step installs what it needs, so each step runs alone, too.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
export CARGO_TERM_COLOR=never

# The real CLI comes in the platform package of this npm package; nothing else of it is used.
sdk=@anthropic-ai/claude-agent-sdk
sdk_version=0.3.330

# The programs from crates.io that the steps use.
nextest_version=0.9.143
fuzz_version=0.13.2
# A later version needs a newer Rust than 1.95.
generate_version=0.23.8

# Reads the YAML of the template.
yaml_version=6.0.3

# Seconds for each fuzz target.
fuzz_seconds=120

# ractor's features change its traits, so tests, examples and benchmarks are checked with each set of them. The
# dev-dependencies turn all other features on.
all_targets_rows=(cluster async-trait cluster,async-trait)
# The library as its users get it, without the dev-dependencies and without the default features: each feature alone, so
# that no feature needs another one. The rows above check all features together.
library_rows=(sessions testing schema rmcp otel metrics __internals cluster async-trait cluster,async-trait)
# The same for the crate of fleets. `postgres-tls` turns `postgres` on.
fleet_rows=(axum postgres postgres-tls socket testkit cluster async-trait cluster,async-trait)
# The length of the storms of the fleet and of its nodes, in seconds, and the cases of its model test, of 500 operations each.
storm_seconds=300
nodes_seconds=600
model_cases=200

# Limits for what hangs, in seconds. Builds do not count, but for programs in the docs, which are built as they run.
test_limit=2400
example_limit=300
guard_limit=1800

current=start
times=()
scratch=$(mktemp -d)
postgres=
loops=()
finish() {
  local status=$?
  [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" || true
  [ -z "$postgres" ] || as_postgres "$(postgres_programs)/pg_ctl" -D "$postgres/data" -m immediate stop >/dev/null || true
  rm -rf "$scratch" ${postgres:+"$postgres"}
  [ "$status" -eq 0 ] || printf '\nci: FAILED after %d s in the step "%s"\n' "$SECONDS" "$current"
}
trap finish EXIT

fail() {
  printf 'ci: %s\n' "$*"
  exit 1
}

# Runs the steps that the arguments name, or all of the list. `--list` prints the list.
run_steps() { # the script's list, separated by white space; its arguments...
  local listed=$1 step begin
  shift
  if [ "${1:-}" = --list ]; then
    printf '%s\n' $listed
    return
  fi
  for step in "$@"; do
    declare -F "step_${step//-/_}" >/dev/null || fail "there is no step $step; the steps are: $(echo $listed)"
  done
  [ $# -gt 0 ] || set -- $listed
  for step in "$@"; do
    current=$step begin=$SECONDS
    printf '\n==> %s (at %d s)\n' "$step" "$begin"
    "step_${step//-/_}"
    times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$step")")
  done
  printf '\nci: all steps passed in %d s\n' "$SECONDS"
  print_times
}

# The same, but a step that fails keeps no other step from running.
run_all_steps() { # the script's list, separated by white space; its arguments...
  local listed=$1 step begin failed=()
  shift
  if [ $# -gt 0 ]; then
    run_steps "$listed" "$@"
    return
  fi
  for step in $listed; do
    begin=$SECONDS
    bash ".ci/${0##*/}" "$step" || failed+=("$step")
    times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$step")")
  done
  current=${failed[*]}
  print_times
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  printf '\nci: all steps passed in %d s\n' "$SECONDS"
}

print_times() {
  printf '%s\n' "${times[@]}" | sort -rn
}

step_tools() {
  local tool
  for tool in cargo git node npm python3; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
  done
  if [ -d "${CARGO_TARGET_DIR:-target}" ]; then need_space 1; else need_space 8; fi
  cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
  cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
  need_nextest
  rustc --version
  cargo clippy --version
  cargo nextest --version | sed -n 1p
  printf 'node %s, npm %s\n' "$(node --version)" "$(npm --version)"
  python3 --version
}

# A full disk looks like a defect of the linker.
need_space() { # GiB
  local free
  free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
  [ "$free" -ge "$1" ] || fail "$free GiB are free on the disk of $PWD: the steps need $1 GiB"
}

# A program from crates.io, in `.tools`.
need_program() { # crate, version, command that prints the version...
  local crate=$1 version=$2
  shift 2
  export PATH="$PWD/.tools/bin:$PATH"
  [[ " $("$@" 2>/dev/null) " =~ \ $version[[:space:]] ]] || cargo install "$crate" --version "$version" --locked --root .tools
}

# Any version will do.
need_nextest() {
  cargo nextest --version >/dev/null 2>&1 || need_program cargo-nextest "$nextest_version" cargo nextest --version
}

# No tracked file names a folder of the machine that it was written on, and downloads stay untracked.
step_tracked_files() {
  git rev-parse --is-inside-work-tree >/dev/null
  if git grep -nIE '(^|[^A-Za-z0-9._-])/(root|work|builds)/' -- .; then
    fail 'the lines above hold a path of a machine'
  fi
  if git grep -nIF -e "$PWD/" -e "${HOME:-$PWD}/" -- .; then
    fail 'the lines above hold a path of this machine'
  fi
  [ -z "$(git ls-files .cli .tools target)" ] || fail 'files under .cli, .tools or target are tracked'
}

step_format() {
  cargo fmt --all --check
  cargo fmt --manifest-path fuzz/Cargo.toml --check
}

# No dependency of the library needs a newer Rust than the library says. Clippy checks the standard library's names in the
# code (`incompatible_msrv`).
step_oldest_rust() {
  cargo metadata --format-version 1 --all-features --locked >"$scratch/metadata"
  python3 - "$scratch/metadata" <<'PYTHON' || fail 'raise rust-version in Cargo.toml, or use an older version of these crates'
import json, sys

metadata = json.load(open(sys.argv[1]))
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
version = lambda package: [int(part) for part in (package["rust_version"] or "1").split(".")][:2]
roots = [package for package in packages.values() if package["name"] in ("greenroom", "greenroom-testkit")]
root, seen, waiting = roots[0], set(), [package["id"] for package in roots]
while waiting:
    package = waiting.pop()
    if package not in seen:
        seen.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
newer = [packages[package] for package in seen if version(packages[package]) > version(root)]
for package in newer:
    print(package["name"], package["version"], "needs Rust", package["rust_version"])
print(f"{len(seen) - 1} dependencies, Rust {root['rust_version']}")
sys.exit(bool(newer))
PYTHON
}

# All code with the features that the tests turn on, and the libraries without any feature.
step_clippy() {
  cargo clippy --workspace --all-targets -- -D warnings
  local crate
  for crate in greenroom greenroom-process greenroom-testkit greenroom-fleet; do
    cargo clippy -p "$crate" --lib --no-default-features -- -D warnings
  done
}

step_clippy_features() {
  local row
  for row in "${all_targets_rows[@]}"; do
    printf -- '-- all targets: %s\n' "$row"
    cargo clippy --all-targets --features "$row" -- -D warnings
  done
  for row in "${library_rows[@]}"; do
    printf -- '-- the library: %s\n' "$row"
    cargo clippy -p greenroom --lib --no-default-features --features "$row" -- -D warnings
  done
  for row in "${fleet_rows[@]}"; do
    printf -- '-- the library of fleets: %s\n' "$row"
    cargo clippy -p greenroom-fleet --lib --no-default-features --features "$row" -- -D warnings
  done
}

# With the features that docs.rs shows.
step_docs() {
  local -x RUSTDOCFLAGS='-D warnings'
  cargo doc --no-deps -p greenroom --features testing,schema,rmcp,otel
  cargo doc --no-deps -p greenroom-process -p greenroom-testkit
  cargo doc --no-deps -p greenroom-fleet --features axum,postgres,socket,testkit
}

# One build for all tests, examples and programs: with other packages or features, cargo would compile the library again.
step_build() {
  cargo test --workspace --no-run
}

# Fails if no test ran, or if one was left out.
nextest() { # arguments of cargo test and of cargo nextest run...
  need_nextest
  local status=0
  cargo test --no-run "$@"
  rm -f target/nextest/ci/junit.xml
  timeout "$test_limit" cargo nextest run --profile ci "$@" 2>&1 | tee "$scratch/tests" || status=$?
  [ ! -f target/nextest/ci/junit.xml ] || slowest_tests
  [ "$status" -eq 0 ] || fail "tests failed, or took longer than $test_limit s"
  grep -qE '^ +Summary .* [0-9]+ tests? run: [0-9]+ passed.* 0 skipped' "$scratch/tests" || fail 'tests were left out'
}

slowest_tests() {
  python3 - target/nextest/ci/junit.xml <<'PYTHON'
import sys, xml.etree.ElementTree as tree

cases = [(float(case.get("time")), case.get("classname"), case.get("name")) for case in tree.parse(sys.argv[1]).iter("testcase")]
print("the slowest tests:")
for seconds, binary, name in sorted(cases, reverse=True)[:20]:
    print(f"{seconds:8.1f} s  {binary} {name}")
PYTHON
}

# One test of a binary that has others.
one_test() { # the path of the test, arguments of cargo nextest run...
  local name=$1
  shift
  need_nextest
  cargo test --no-run "$@"
  timeout "$test_limit" cargo nextest run --profile ci --no-capture "$@" -- --exact "$name" 2>&1 | tee "$scratch/tests"
  grep -qE '^ +Summary .* 1 test run: 1 passed' "$scratch/tests" || fail "$name did not run"
}

# All tests but those in the docs, each of them in a process of its own, with the real CLI, on PostgreSQL and in Chromium.
step_tests() {
  need_tests
  nextest --workspace
}

need_tests() {
  need_cli
  need_python_sdk
  need_postgres
  start_postgres
  need_chromium
  export GREENROOM_REQUIRE_CLI=1 GREENROOM_REQUIRE_POSTGRES=1 GREENROOM_REQUIRE_CHROMIUM=1
  step_build
}

# The same tests ten times while three loops keep the processors busy. In no list: it takes hours.
step_tests_under_load() {
  local round
  for round in 1 2 3; do
    (while :; do :; done) &
    loops+=($!)
  done
  for round in $(seq "${GREENROOM_ROUNDS:-10}"); do
    printf -- '-- round %d\n' "$round"
    step_tests
  done
}

# The same tests in random order, those of a binary in one process, as `cargo test` runs them; GREENROOM_ROUNDS says how often.
# A failure names the seed: `--shuffle-seed` repeats the order of each binary.
step_tests_in_random_order() {
  local round seed
  need_tests
  for round in $(seq "${GREENROOM_ROUNDS:-1}"); do
    seed=$((RANDOM * 32768 + RANDOM))
    printf -- '-- round %d, seed %d\n' "$round" "$seed"
    cargo test --workspace --no-run --message-format json >"$scratch/artifacts"
    # The test harness of a stable compiler takes this unstable option if it is told that it may.
    python3 - "$scratch/artifacts" "$seed" "$test_limit" <<'PYTHON' || fail "tests failed in the order of the seed $seed"
import json, os, random, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

artifacts, seed, limit = sys.argv[1:]
environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}


def run(artifact, *which):
    folder = os.path.dirname(artifact["manifest_path"])
    shuffled = ["-Z", "unstable-options", "--shuffle-seed", seed, "--test-threads", "4"]
    command = [artifact["executable"], *shuffled, *which]
    return artifact, subprocess.run(
        ["timeout", limit, *command],
        cwd=folder,
        env={**environment, "CARGO_MANIFEST_DIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def tell(artifact, ended):
    lines = ended.stdout.decode(errors="replace").splitlines()
    if ended.returncode == 0:
        lines = [line for line in lines if line.startswith("test result") and " 0 passed" not in line]
    for line in lines:
        print(f"{artifact['target']['name']}: {line}", flush=True)
    return ended.returncode != 0


artifacts = [artifact for artifact in map(json.loads, open(artifacts)) if artifact.get("executable")]
artifacts = [artifact for artifact in artifacts if artifact["profile"]["test"]]
random.Random(int(seed)).shuffle(artifacts)
# Tests that take most of a machine run alone, as `.config/nextest.toml` has it.
large = "chains_of_forks"
# The others wait for processes or for a time, so two binaries run at once.
with ThreadPoolExecutor(2) as pool:
    others = pool.map(lambda artifact: run(artifact, "--skip", large), artifacts)
    failed = [tell(*ended) for ended in others]
failed += [tell(*run(artifact, large)) for artifact in artifacts]
sys.exit(any(failed))
PYTHON
  done
}

step_doc_tests() {
  timeout "$test_limit" cargo test --workspace --doc 2>&1 | tee "$scratch/tests"
  awk '
    /^test result:/ { passed += $4; ignored += $8 }
    END {
      printf "ci: %d programs in the docs passed, %d ignored\n", passed, ignored
      exit (passed == 0 || ignored > 0)
    }' "$scratch/tests"
}

# The arguments of an example; most need none.
example_arguments() {
  case $1 in
    host) echo "--cli target/debug/greenroom-fake-cli" ;;
  esac
}

# Every example runs offline and ends by itself. Those that take a CLI run with the real one, too: all that share
# examples/common, `quickstart` and the chat.
step_examples() {
  local example count=0
  need_cli
  step_build
  for example in examples/*.rs examples/*/main.rs; do
    [ -f "$example" ] || continue
    example=${example%/main.rs}
    example=$(basename "$example" .rs)
    printf -- '-- %s\n' "$example"
    # shellcheck disable=SC2046 # the arguments are words
    timeout "$example_limit" "target/debug/examples/$example" $(example_arguments "$example")
    count=$((count + 1))
  done
  [ "$count" -gt 0 ] || fail 'there is no example'
  timeout "$example_limit" target/debug/fleet
  timeout "$example_limit" target/debug/chat
  for example in quickstart $(grep -l '^mod common;' examples/*.rs | xargs -n 1 basename -s .rs); do
    printf -- '-- %s, real CLI\n' "$example"
    timeout "$example_limit" "target/debug/examples/$example" --cli "$GREENROOM_CLI"
  done
  timeout "$example_limit" target/debug/chat --cli "$GREENROOM_CLI"
}

# A CLI that calls ten thousand times, 64 at once, and counts the answers: it says is_error if one is missing,
# wrong, or comes twice.
step_ten_thousand_calls() {
  step_build
  FAKE_CLI='calls=10000;window=64' timeout "$example_limit" \
    target/debug/examples/host --cli target/debug/greenroom-fake-cli >"$scratch/host"
  node -e '
    const lines = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n").map(JSON.parse)
    const { outcome } = lines.find((line) => line.kind === "outcome")
    const told = JSON.parse(outcome.result.result)
    console.log(told)
    const fine = told.answered === 10000 && !told.duplicates && !told.unknown && !told.errors && !outcome.result.is_error
    process.exit(fine ? 0 : 1)' "$scratch/host"
}

# A service of the template, outside of the tree: it builds, its tests pass, and it ends in the time that its platforms give.
step_template() {
  local venv=$PWD/.tools/python
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "PyYAML==$yaml_version"
  need_postgres
  start_postgres
  need_systemd_analyze
  GREENROOM_REQUIRE_POSTGRES=1 GREENROOM_REQUIRE_SYSTEMD=1 "$venv/bin/python" tests/template/check.py
}

# The files that the step `template` checks are those that the real `cargo generate` writes.
step_template_generated() {
  need_program cargo-generate "$generate_version" cargo generate --version
  python3 tests/template/check.py --generate
}

# CLIs and services of a fleet are killed for minutes. The step `tests` alone does that for some seconds.
step_storm() {
  GREENROOM_FLEET_STORM_SECONDS=$storm_seconds NEXTEST_SUCCESS_OUTPUT=immediate nextest -p greenroom-fleet --test storm
  grep -q "storm of .* $storm_seconds s: " "$scratch/tests" || fail 'the storm was not run for its time'
}

# Random operations over a fleet, a hundred thousand of them. The step `tests` alone runs a twentieth.
step_model() {
  GREENROOM_FLEET_MODEL_CASES=$model_cases NEXTEST_SUCCESS_OUTPUT=immediate nextest -p greenroom-fleet --test model
  awk '/ operations, / && $1 > most { most = $1 } END { exit (most < 99000) }' "$scratch/tests" ||
    fail 'the model test of the fleet had too few operations'
}

# A tenth of a hundred nodes with a hundred thousand names is lost at once. The step `tests` alone has twenty nodes.
step_hundred_nodes() {
  GREENROOM_FLEET_NODES=100 GREENROOM_FLEET_NAMES=100000 one_test \
    actor::keeper::tests::many::a_tenth_of_many_nodes_is_lost_at_once_without_a_herd -p greenroom-fleet --lib
  grep -q '100 nodes, 100000 names, 10 nodes lost' "$scratch/tests" || fail 'the nodes of the fleet were not as many'
}

# Nodes are killed, stopped and cut off from PostgreSQL for ten minutes. The step `tests` alone does that for half a minute.
step_nodes_on_postgres() {
  need_postgres
  GREENROOM_REQUIRE_POSTGRES=1 GREENROOM_FLEET_NODES_SECONDS=$nodes_seconds NEXTEST_SUCCESS_OUTPUT=immediate \
    nextest -p greenroom-fleet --test nodes
  grep -q "nodes of .* $nodes_seconds s: " "$scratch/tests" || fail 'the nodes were not disturbed for their time'
}

# Fails on counts, sizes and ratios that are out of their bounds. No bound depends on the speed of the machine.
step_benchmark_guard() {
  cargo bench --bench pipe --no-run
  timeout "$guard_limit" cargo bench --bench pipe -- --guard
}

# A run of each target from the tracked seeds; fails on a crash, a hang, or if nothing was run. The step `tests` alone
# runs the seeds. Such a short run does not pay for much optimisation.
step_fuzz() {
  local target
  need_program cargo-fuzz "$fuzz_version" cargo-fuzz --version
  for target in fuzz/targets/*.rs; do
    target=$(basename "$target" .rs)
    mkdir "$scratch/corpus-$target"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo fuzz run --sanitizer none "$target" "$scratch/corpus-$target" "fuzz/seeds/$target" \
      -- -dict=fuzz/dictionary -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      >"$scratch/fuzz" 2>&1 || {
      tail -n 60 "$scratch/fuzz"
      fail "the fuzz target $target failed"
    }
    awk -v target="$target" '
      /^stat::number_of_executed_units:/ { runs = $2 }
      END {
        printf "ci: %d runs of the fuzz target %s\n", runs, target
        exit (runs == 0)
      }' "$scratch/fuzz"
  done
}

# The tests on the real CLI with older versions of it: docs/cli-versions.md says what holds.
step_cli_versions() {
  python3 tests/real_cli/range/run.py --check
}

# What is published: tests/release/check says what each of these checks.
step_package() { tests/release/check package; }
step_deny() { tests/release/check deny; }
step_public_api() { tests/release/check public-api; }
step_semver() { tests/release/check semver; }
step_minimal_versions() { tests/release/check minimal-versions; }

need_cli() {
  local manifest=.cli/node_modules/$sdk/package.json
  if ! grep -qs "\"version\": \"$sdk_version\"" "$manifest"; then
    npm install --prefix .cli --no-audit --no-fund --omit=peer "$sdk@$sdk_version"
  fi
  local candidate
  for candidate in "$PWD/.cli/node_modules/$sdk"-*/claude; do
    # On Linux there may be a binary for glibc and a binary for musl.
    if [ -x "$candidate" ] && DISABLE_AUTOUPDATER=1 "$candidate" --version; then
      export GREENROOM_CLI=$candidate
      return
    fi
  done
  fail "no claude binary for this platform beside $sdk $sdk_version"
}

# The Python SDK, which the library is compared with, in a virtual environment.
need_python_sdk() {
  local venv=$PWD/.tools/python
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/differential/requirements.txt
  # The SDK brings a CLI of its own; the tests give both libraries the CLI that is installed above.
  rm -rf "$venv"/lib/python3*/site-packages/claude_agent_sdk/_bundled
  export GREENROOM_PYTHON=$venv/bin/python
}

# Every name of both SDKs has a row in tests/coverage/table.tsv, and every field has a counterpart or a row in
# tests/coverage/fields.tsv. Names of other versions have to be looked at first.
step_sdk_names() {
  need_cli
  need_python_sdk
  "$GREENROOM_PYTHON" tests/coverage/extract.py ".cli/node_modules/$sdk/sdk.d.ts" >"$scratch/names"
  diff tests/coverage/names.tsv "$scratch/names" ||
    fail 'the SDKs have other names than tests/coverage/names.tsv: put these there, and a row for each into tests/coverage/table.tsv, or tests/coverage/fields.tsv for a field'
}

postgres_programs() {
  ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1
}

# The programs of PostgreSQL and PgBouncer, from Debian's packages.
need_postgres() {
  if ! ls /usr/lib/postgresql/*/bin/initdb /usr/sbin/pgbouncer >/dev/null 2>&1; then
    mkdir -p /etc/postgresql-common
    # The package starts no server.
    printf 'create_main_cluster = false\n' >/etc/postgresql-common/createcluster.conf
    apt-get -o DPkg::Lock::Timeout=300 update -q
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends postgresql pgbouncer
  fi
  postgres_programs
}

# The browser of the tests of pages: Debian's, or one that is there.
need_chromium() {
  command -v chromium >/dev/null || command -v google-chrome >/dev/null || {
    apt-get -o DPkg::Lock::Timeout=300 update -q
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends chromium
  }
}

# Checks the unit of the template.
need_systemd_analyze() {
  command -v systemd-analyze >/dev/null || {
    apt-get -o DPkg::Lock::Timeout=300 update -q
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends systemd
  }
}

# The server refuses to run for root.
as_postgres() { # command...
  if [ "$(id -u)" -eq 0 ]; then
    setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
  else
    "$@"
  fi
}

# One server for all tests that take the address of one. Tests that kill a server start their own.
start_postgres() {
  local programs port
  [ -z "$postgres" ] || return 0
  programs=$(postgres_programs)
  postgres=$(mktemp -d)
  [ "$(id -u)" -ne 0 ] || chown postgres "$postgres"
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  as_postgres "$programs/initdb" -A trust -U postgres -E UTF8 --locale=C.UTF-8 -D "$postgres/data" >/dev/null
  as_postgres "$programs/pg_ctl" -D "$postgres/data" -l "$postgres/log" -w -t 120 start >/dev/null \
    -o "-c port=$port -c fsync=off -c listen_addresses=127.0.0.1 -c max_connections=300 -c unix_socket_directories=$postgres"
  export GREENROOM_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres"
}
