"""The host of the benchmark on the Python SDK: answers the calls of the driver, and prints the driver's figures."""

import asyncio
import json
import os
import resource

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)


@tool("echo", "Say it again", {"text": str})
async def echo(arguments):
    return {"content": [{"type": "text", "text": arguments["text"]}]}


async def main():
    options = ClaudeAgentOptions(
        cli_path=os.environ["GREENROOM_BENCH_CLI"],
        mcp_servers={"bench0": create_sdk_mcp_server("bench0", "1.0.0", [echo])},
        # A line of the benchmark, with room to spare.
        max_buffer_size=64 << 20,
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("go")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                shown = json.loads(message.result)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cost = {"cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss * 1024 / 1e6}
    print(json.dumps({"shown": shown} | cost))


asyncio.run(main())
