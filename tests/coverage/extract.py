"""Prints the names that make up the public interface of both SDKs, one to a line: SDK, kind, name.

`python extract.py SDK.D.TS` reads the declarations of the TypeScript SDK, and the Python SDK that this Python has.
`names.tsv` beside this file holds what it printed for the versions that `.ci/run` installs.

A name of the kind `field` is `Type.field`, and `Type.field.inner` for an object that is declared inside a field.
"""

import dataclasses
import inspect
import re
import sys
import typing

import claude_agent_sdk
from claude_agent_sdk import types

DECLARATION = re.compile(r"^export declare (type|interface|class|function|const) (\w+)", re.M)
MEMBER = re.compile(r"^    (?:readonly )?(\w+)(\??:|\(|<)", re.M)
OBJECT = re.compile(r"^(?:export )?declare (?:type|interface) (\w+)", re.M)
# A comment, a string, a word, or a single character.
TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:\\.|[^`\\])*`|[\w$]+|=>|\S", re.S)
# The CLI's settings files: one option here, whose keys are the CLI's.
NO_FIELDS_OF = ("Settings",)


def body(text, head):
    """What is between the braces of a declaration: its lines, without comments."""
    found = re.search(rf"^(?:export )?declare (?:type|interface) {head}\b[^{{;]*\{{\n(.*?)^\}}", text, re.M | re.S)
    return re.sub(r"/\*.*?\*/", "", found.group(1), flags=re.S)


def members(text, head):
    return [name for name, _ in MEMBER.findall(body(text, head))]


def union(text, head):
    found = re.search(rf"^export declare type {head} = ([^;]+);", text, re.M)
    return [part.strip().strip("'") for part in found.group(1).split("|")]


def fields(text):
    """Yields `Type.field` for each field of each object that is declared, those inside of fields too."""
    for found in OBJECT.finditer(text):
        if found.group(1) not in NO_FIELDS_OF:
            # The end of a declaration is the first bracket or semicolon without an indent.
            end = re.compile(r"^\S.*;$|^\}$", re.M).search(text, found.start()).end()
            yield from members_of(TOKEN.findall(text, found.end(), end), found.group(1))


def members_of(tokens, name):
    # For each open bracket: the bracket, and the field that it belongs to. `key`: whether the name of a field may follow.
    open_brackets, path, key = [("", name)], name, False
    for token in tokens:
        if token.startswith(("/*", "//")):
            continue
        if key and token not in ("}", ";", "readonly"):
            key = False
            # `[key: string]: …` has no name of its own.
            if token != "[":
                path = f"{open_brackets[-1][1]}.{token.strip(chr(39))}"
                yield path
        if token in ("{", "(", "[", "<"):
            open_brackets.append((token, path))
            key = token == "{"
        elif token in ("}", ")", "]", ">"):
            _, path = open_brackets.pop()
            key = False
        elif token == ";" and open_brackets[-1][0] == "{":
            path, key = open_brackets[-1][1], True


def typescript(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    yield from (("option", name) for name in members(text, "Options"))
    yield from (("method", name) for name in members(text, "Query"))
    yield from (("hook", name) for name in union(text, "HookEvent"))
    messages = union(text, "SDKMessage")
    yield from (("message", name) for name in messages)
    yield from (("request", name) for name in re.findall(r"^declare type SDK\w+Request = \{.*?^    subtype: '(\w+)';", text, re.M | re.S))
    yield from (("initialize", name) for name in members(text, "SDKControlInitializeRequest") if name != "subtype")
    yield from (("field", name) for name in fields(text))
    for kind, name in DECLARATION.findall(text):
        if name in messages or name in ("Options", "HookEvent"):
            continue
        yield ("function" if kind == "function" else "type"), name


def python():
    yield from (("option", field.name) for field in dataclasses.fields(claude_agent_sdk.ClaudeAgentOptions))
    client = claude_agent_sdk.ClaudeSDKClient
    methods = inspect.getmembers(client, lambda member: inspect.isfunction(member))
    yield from (("method", name) for name, _ in methods if not name.startswith("_"))
    yield from (("hook", one) for member in typing.get_args(types.HookEvent) for one in typing.get_args(member) or [member])
    for name in claude_agent_sdk.__all__:
        member = getattr(claude_agent_sdk, name)
        if name.endswith("Message") or name in ("StreamEvent", "RateLimitEvent"):
            yield "message", name
        else:
            yield ("function" if inspect.isfunction(member) else "type"), name
    for name, member in vars(types).items():
        if dataclasses.is_dataclass(member) or typing.is_typeddict(member):
            yield from (("field", f"{name}.{field}") for field in inspect.get_annotations(member) if not field.startswith("_"))


def main():
    rows = [("typescript", *row) for row in typescript(sys.argv[1])]
    rows += [("python", *row) for row in python()]
    for row in sorted(set(rows), key=lambda row: (row[0] == "python", row[1:])):
        print("\t".join(row))


main()
