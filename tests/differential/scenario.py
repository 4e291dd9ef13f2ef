"""The scenarios of tests/differential, in the Python SDK.

`python scenario.py NAME` runs one of them against the CLI and the model that the environment names, and prints what
it was told as one JSON object. scenarios.rs holds the same scenarios in greenroom, under the same names.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict, is_dataclass

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolAnnotations,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    query,
    rename_session,
    tag_session,
    tool,
)

# One red pixel.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"

# Observations of the scenario: assistant messages, user messages, outcomes of turns, inputs of callbacks, and hooks of the
# CLI's own settings that ran. A tool may run while the model is still speaking, so the order across these is not always the same.
told = {"said": [], "heard": [], "ends": [], "asked": [], "noticed": []}
asked = told["asked"]


def plain(value):
    """Data classes as JSON, without the fields that are not set."""
    if is_dataclass(value):
        value = asdict(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def block(one):
    match one:
        case TextBlock():
            return {"text": one.text}
        case ThinkingBlock():
            return {"thinking": one.thinking}
        case ToolUseBlock():
            return {"call": one.name, "id": one.id, "input": one.input}
        case ToolResultBlock():
            return {"result": one.tool_use_id, "content": one.content, "is_error": bool(one.is_error)}
    return {"other": type(one).__name__}


def blocks(content):
    return [{"text": content}] if isinstance(content, str) else [block(one) for one in content]


def note(message):
    match message:
        case AssistantMessage():
            told["said"].append({"blocks": blocks(message.content), "parent": message.parent_tool_use_id})
        case UserMessage():
            told["heard"].append({"blocks": blocks(message.content), "parent": message.parent_tool_use_id})
        case ResultMessage():
            told["ends"].append(
                {
                    "end": message.subtype,
                    "is_error": message.is_error,
                    "num_turns": message.num_turns,
                    "result": message.result,
                    "errors": message.errors or [],
                    "stop_reason": message.stop_reason,
                    "terminal_reason": message.terminal_reason,
                    "structured_output": message.structured_output,
                    "denied": [denial["tool_name"] for denial in message.permission_denials or []],
                    "usage": message.usage,
                    "total_cost_usd": message.total_cost_usd,
                }
            )
        case SystemMessage() if message.subtype.startswith("hook_"):
            told["noticed"].append(message.data)


def options(**given):
    # The SDK cannot say of a tool that the model sees it at once, so this is said for all of them.
    given.setdefault("env", {"ENABLE_TOOL_SEARCH": "false"})
    return ClaudeAgentOptions(
        cli_path=os.environ["GREENROOM_CLI"], cwd=os.environ["GREENROOM_CWD"], **given
    )


async def say(client, prompt):
    """Prompts, and reads the turn to its end."""
    if not isinstance(prompt, str):
        prompt = stream(prompt)
    await client.query(prompt)
    await finish(client)


async def finish(client):
    async for message in client.receive_response():
        note(message)


async def stream(content):
    yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}


async def session_id(client, prompt):
    """The same, and says which session it was."""
    await client.query(prompt)
    async for message in client.receive_response():
        note(message)
        if isinstance(message, ResultMessage):
            return message.session_id


KIND = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
NUMBERS = {
    "type": "object",
    "properties": {
        "a": {"description": "The first", "type": "integer", "format": "int64"},
        "b": {"description": "The second", "type": "integer", "format": "int64"},
    },
    "required": ["a", "b"],
}


def text(text):
    return {"type": "text", "text": text}


def picture():
    return {"type": "image", "data": PICTURE, "mimeType": "image/png"}


RESULTS = {
    "text": {"content": [text("plain")]},
    "several": {"content": [text("one"), text("two"), text("")]},
    "nothing": {"content": []},
    "signs": {"content": [text("ä\u2028\U0001f3ad\t\u0001\"\\<b>")]},
    "picture": {"content": [text("look:"), picture()]},
    "error": {"content": [text("the disk is full")], "is_error": True},
    "errors": {"content": [text("first"), text("second")], "is_error": True},
    "long": {"content": [text("0123456789" * 12_000)]},
}


async def results():
    @tool("give", "Give a result of this kind", KIND)
    async def give(args):
        if args["kind"] == "raised":
            raise ValueError("it does not add up")
        return RESULTS[args["kind"]]

    @tool("look", "Look, and change nothing", {"type": "object", "properties": {}}, ToolAnnotations(title="Look", readOnlyHint=True))
    async def look(args):
        return {"content": [text("seen")]}

    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[give, look])}, allowed_tools=["mcp__desk__*"])) as client:
        await say(client, "Give.")


async def rich_results():
    RICH = {
        "link": {"content": [{"type": "resource_link", "uri": "file:///a.txt", "name": "a", "description": "The first"}]},
        "file": {"content": [{"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}}]},
        "bytes": {"content": [text("bytes:"), {"type": "resource", "resource": {"uri": "file:///a.bin", "mimeType": "application/octet-stream", "blob": "aGk="}}]},
        "sound": {"content": [text("sound:"), {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]},
        "structured": {"content": [text("5")], "structuredContent": {"sum": 5}},
    }

    @tool("give", "Give a result of this kind", KIND)
    async def give(args):
        return RICH[args["kind"]]

    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[give])}, allowed_tools=["mcp__desk__*"])) as client:
        await say(client, "Give.")


async def arguments():
    @tool("add", "Add two numbers", NUMBERS)
    async def add(args):
        return {"content": [text(str(args["a"] + args["b"]))]}

    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(json.dumps(args, ensure_ascii=False, sort_keys=True, separators=(",", ":")))]}

    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[add, echo])}, allowed_tools=["mcp__desk__*"])) as client:
        await say(client, "Try.")


async def permissions():
    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    async def can_use_tool(name, given, context):
        asked.append(
            {
                "tool_name": name,
                "input": given,
                "tool_use_id": context.tool_use_id,
                "suggestions": [update.to_dict() for update in context.suggestions],
                "title": context.title,
                "display_name": context.display_name,
                "description": context.description,
                "decision_reason": context.decision_reason,
                "blocked_path": context.blocked_path,
            }
        )
        match given["kind"]:
            case "as it is":
                return PermissionResultAllow()
            case "changed":
                return PermissionResultAllow(updated_input={"kind": "changed by the host"})
            case "no":
                return PermissionResultDeny(message="not on a Sunday")
            case "for good":
                return PermissionResultAllow(updated_permissions=context.suggestions)
            case "stop":
                return PermissionResultDeny(message="that is enough", interrupt=True)
        raise ValueError(f"asked again for {given}")

    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[echo])}, can_use_tool=can_use_tool)) as client:
        await say(client, "Ask.")
        await say(client, "Ask, and stop.")
        await say(client, "Ask no more.")


async def hooks():
    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    @tool("wipe", "Wipe the desk", {"type": "object", "properties": {}})
    async def wipe(args):
        raise ValueError("it is screwed on")

    async def before(given, tool_use_id, context):
        asked.append(given)
        match given["tool_input"].get("kind"):
            case "no":
                return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "a hook says no"}}
            case "changed":
                return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"kind": "changed by a hook"}}}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}

    async def after(given, tool_use_id, context):
        asked.append(given)
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "It was said on a Monday."}}

    async def failed(given, tool_use_id, context):
        asked.append(given)
        return {"hookSpecificOutput": {"hookEventName": "PostToolUseFailure", "additionalContext": "Fetch a screwdriver."}}

    async def prompted(given, tool_use_id, context):
        asked.append(given)
        return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "The user is called Ada."}}

    async def stopping(given, tool_use_id, context):
        asked.append(given)
        return {} if given["stop_hook_active"] else {"decision": "block", "reason": "Say goodbye first."}

    on = {
        "PreToolUse": [HookMatcher(matcher="mcp__desk__.*", hooks=[before])],
        "PostToolUse": [HookMatcher(hooks=[after])],
        "PostToolUseFailure": [HookMatcher(hooks=[failed])],
        "UserPromptSubmit": [HookMatcher(hooks=[prompted])],
        "Stop": [HookMatcher(hooks=[stopping])],
    }
    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[echo, wipe])}, hooks=on)) as client:
        await say(client, "Go through the hooks.")


async def late_hooks():
    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    def deny(reason):
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}}

    @tool("wipe", "Wipe the desk", {"type": "object", "properties": {}})
    async def wipe(args):
        return {"content": [text("wiped")]}

    async def slow(given, tool_use_id, context):
        await asyncio.sleep(2)
        return deny("the review says no")

    async def late(given, tool_use_id, context):
        if given["tool_input"]["kind"] == "raises":
            raise ValueError("the policy is lost")
        await asyncio.sleep(4)
        return {}

    on = {
        "PreToolUse": [
            HookMatcher(matcher="mcp__desk__wipe", hooks=[slow]),
            HookMatcher(matcher="mcp__desk__echo", hooks=[late], timeout=1),
        ],
    }
    server = create_sdk_mcp_server("desk", tools=[echo, wipe])
    async with ClaudeSDKClient(options(mcp_servers={"desk": server}, allowed_tools=["mcp__desk"], hooks=on)) as client:
        await say(client, "Wipe and echo.")


async def conversation():
    async with ClaudeSDKClient(options(model="claude-sonnet-4-5", permission_mode="default", tools=["Read", "Write"])) as client:
        await say(client, "First?")
        await say(client, [text("Second, with a picture?"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}])
        await client.set_model("claude-opus-4-1")
        await say(client, "Third, to another model?")
        await client.set_model(None)
        await say(client, "Fourth, to the first model?")
        await client.set_permission_mode("plan")
        await say(client, "Fifth, as a plan?")
        await client.set_permission_mode("acceptEdits")
        await say(client, "Sixth, and write it down?")


async def prompt_text():
    async with ClaudeSDKClient(options(system_prompt="Speak in rhymes.\nAlways.")) as client:
        await say(client, "How are you?")


async def prompt_appended():
    preset = {"type": "preset", "preset": "claude_code", "append": "Speak in rhymes."}
    async with ClaudeSDKClient(options(system_prompt=preset)) as client:
        await say(client, "How are you?")


async def prompt_for_all():
    preset = {"type": "preset", "preset": "claude_code", "exclude_dynamic_sections": True, "snapshot": False}
    async with ClaudeSDKClient(options(system_prompt=preset, verbatim_prompts=True)) as client:
        await say(client, "What is in @notes.txt? /help")


async def interrupted():
    called = asyncio.Event()

    @tool("hang", "Wait for ever", {"type": "object", "properties": {}})
    async def hang(args):
        called.set()
        await asyncio.Event().wait()

    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[hang])}, allowed_tools=["mcp__desk__hang"])) as client:
        await client.query("Hang.")
        reading = asyncio.create_task(finish(client))
        await called.wait()
        await client.interrupt()
        await reading
        await say(client, "Are you there?")


async def steered():
    called, going = asyncio.Event(), asyncio.Event()

    @tool("wait", "Wait for a word", {"type": "object", "properties": {}})
    async def wait(args):
        called.set()
        await going.wait()
        return {"content": [text("waited")]}

    async with ClaudeSDKClient(options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[wait])}, allowed_tools=["mcp__desk__wait"])) as client:
        await client.query("Wait.")
        reading = asyncio.create_task(finish(client))
        await called.wait()
        await client.query("Use the blue one.")
        await client.query("And hurry.")
        going.set()
        await reading
        await say(client, "Are you there?")


async def resumed():
    async with ClaudeSDKClient(options()) as client:
        first = await session_id(client, "Remember blue.")
    async with ClaudeSDKClient(options(resume=first)) as client:
        same = await session_id(client, "Which colour?")
    async with ClaudeSDKClient(options(resume=first, fork_session=True)) as client:
        fork = await session_id(client, "And which in the fork?")
    async with ClaudeSDKClient(options(continue_conversation=True)) as client:
        newest = await session_id(client, "And in the newest?")
    asked.append({"same": same == first, "forked": fork != first, "newest": newest == fork})


async def agents():
    scout = AgentDefinition(
        description="Looks ahead",
        prompt="You are a scout.",
        tools=["Read", "mcp__desk__echo"],
        disallowedTools=["Write"],
        model="haiku",
        maxTurns=3,
        effort="low",
        initialPrompt="Look around first.",
        permissionMode="dontAsk",
        memory="project",
    )

    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    given = options(
        agents={"scout": scout},
        mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[echo])},
        allowed_tools=["Agent", "mcp__desk__*"],
        tools=["Agent", "Read"],
        forward_subagent_text=True,
    )
    async with ClaudeSDKClient(given) as client:
        await say(client, "Send the scout.")


async def one_step():
    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    async with ClaudeSDKClient(options(max_turns=1, mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[echo])}, allowed_tools=["mcp__desk"])) as client:
        await say(client, "Echo.")
        await say(client, "Go on.")


async def output_schema():
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
    async with ClaudeSDKClient(options(output_format={"type": "json_schema", "schema": schema})) as client:
        await say(client, "What is 5 + 3?")


async def built_in_tools():
    given = options(
        tools=["Read", "Write", "Bash", "Glob"],
        allowed_tools=["Read", "Write", "Glob", "Bash(echo:*)"],
        disallowed_tools=["Bash(rm:*)"],
        permission_mode="dontAsk",
        add_dirs=[os.environ["HOME"]],
        max_thinking_tokens=2048,
        effort="low",
        setting_sources=["project"],
        settings=json.dumps({"env": {"COLOUR": "blue"}}),
    )
    async with ClaudeSDKClient(given) as client:
        await say(client, "Use them.")


async def deferred_tools():
    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    given = options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[echo])}, allowed_tools=["mcp__desk__*"], env={})
    async with ClaudeSDKClient(given) as client:
        await say(client, "Search for the tool.")
        await say(client, "Call it again.")


async def outside_server():
    server = {"type": "stdio", "command": os.environ["GREENROOM_SERVER"], "env": {"FAKE_CLI": "mcp-server"}}
    given = options(mcp_servers={"outside": server}, strict_mcp_config=True, allowed_tools=["mcp__outside__*"])
    async with ClaudeSDKClient(given) as client:
        await say(client, "Shout.")


async def plugin():
    given = options(
        plugins=[{"type": "local", "path": os.path.join(os.environ["HOME"], "plug")}],
        skills=["plug:knots"],
        sandbox={"enabled": False, "excludedCommands": ["docker"]},
        settings=json.dumps({"attribution": {"commit": "By nobody"}}),
        tools=["Bash", "Skill"],
    )
    async with ClaudeSDKClient(given) as client:
        await say(client, "/plug:greet Ada")
        await say(client, "Tie a knot.")


def described(info):
    names = ["summary", "custom_title", "first_prompt", "git_branch", "cwd", "tag"]
    return {name: getattr(info, name) for name in names} | {"created": info.created_at is not None}


def written(messages):
    return [
        {"type": one.type, "message": one.message, "parent": one.parent_tool_use_id, "uuid": bool(one.uuid)}
        for one in messages
    ]


async def on_disk():
    scout = AgentDefinition(description="Looks ahead", prompt="You are a scout.", tools=["Read"])
    async with ClaudeSDKClient(options(agents={"scout": scout}, tools=["Agent", "Read"])) as client:
        first = await session_id(client, "Send the scout.")
        await say(client, "And what now?")
    async with ClaudeSDKClient(options()) as client:
        second = await session_id(client, "/compact is a word; another session.")

    here = os.environ["GREENROOM_CWD"]
    asked.append([described(info) for info in list_sessions(here)])
    asked.append([described(info) for info in list_sessions(here, limit=1, offset=1)])
    asked.append(described(get_session_info(first, here)))
    asked.append(get_session_info("9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11", here) is None)
    messages = get_session_messages(first, here)
    asked.append(written(messages))
    asked.append(written(get_session_messages(first, here, limit=2, offset=1)))
    agents = list_subagents(first, here)
    asked.append([written(get_subagent_messages(first, agent, here)) for agent in agents])
    rename_session(first, "  The scout's way ", here)
    tag_session(second, "kept", here)
    # Both were written to at the same moment.
    asked.append(sorted(map(described, list_sessions(here)), key=lambda info: info["summary"]))
    tag_session(second, None, here)
    asked.append(described(get_session_info(second, here)))
    end = [one for one in messages if one.type == "assistant"][-2].uuid
    fork = fork_session(first, here, up_to_message_id=end, title="A fork").session_id
    asked.append(described(get_session_info(fork, here)))
    asked.append(written(get_session_messages(fork, here)))
    delete_session(first, here)
    asked.append(sorted(map(described, list_sessions(here)), key=lambda info: info["summary"]))
    async with ClaudeSDKClient(options(resume=fork)) as client:
        await say(client, "Go on in the fork.")


async def questions():
    async with ClaudeSDKClient(options(tools=["Read", "Write"], model="claude-sonnet-4-5")) as client:
        info = await client.get_server_info()
        for name in ["commands", "agents", "models", "output_style", "available_output_styles"]:
            asked.append(info[name])
        await say(client, "Hello.")
        asked.append(await client.get_mcp_status())
        asked.append(await client.get_context_usage())
        for wrong in [client.stop_task("none"), client.reconnect_mcp_server("none"), client.rewind_files("none")]:
            try:
                asked.append(await wrong)
            except Exception as error:
                asked.append(str(error))


async def one_shot():
    @tool("echo", "Say the arguments", KIND)
    async def echo(args):
        return {"content": [text(args["kind"])]}

    given = options(mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[echo])}, allowed_tools=["mcp__desk__*"])
    with open("notes.txt", "w") as file:
        file.write("noted")
    async for message in query(prompt="Echo, /compact, @notes.txt.", options=given):
        note(message)


async def failed_calls():
    async with ClaudeSDKClient(options()) as client:
        await say(client, "Fail.")
        await say(client, "And now?")


async def started():
    # What the CLI says before the first prompt is read with its turn.
    hook = {"type": "command", "command": "echo good morning"}
    settings = json.dumps({"hooks": {"SessionStart": [{"hooks": [hook]}]}})
    async with ClaudeSDKClient(options(settings=settings)) as client:
        await say(client, "Good morning.")


async def replayed():
    async with ClaudeSDKClient(options(extra_args={"replay-user-messages": None})) as client:
        await say(client, "First?")
        await say(client, "Second?")


async def main():
    await globals()[sys.argv[1]]()
    print(json.dumps(plain(told)))


asyncio.run(main())
