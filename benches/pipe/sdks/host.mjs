// The host of the benchmark on the TypeScript SDK: answers the calls of the driver, and prints the driver's figures.

import { createSdkMcpServer, query, tool } from '@anthropic-ai/claude-agent-sdk'
import { z } from 'zod'

const echo = tool('echo', 'Say it again', { text: z.string() }, async ({ text }) => ({
  content: [{ type: 'text', text }],
}))

// The input stays open until the result is there: without it the SDK closes the pipe.
let end
const ended = new Promise((resolve) => (end = resolve))
async function* prompts() {
  yield { type: 'user', message: { role: 'user', content: 'go' }, parent_tool_use_id: null, session_id: '' }
  await ended
}

const options = {
  pathToClaudeCodeExecutable: process.env.GREENROOM_BENCH_CLI,
  mcpServers: { bench0: createSdkMcpServer({ name: 'bench0', version: '1.0.0', tools: [echo] }) },
}
let shown
for await (const message of query({ prompt: prompts(), options })) {
  if (message.type === 'result') {
    shown = JSON.parse(message.result)
    end()
  }
}
const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage()
const cost = { cpu_seconds: (userCPUTime + systemCPUTime) / 1e6, peak_mb: (maxRSS * 1024) / 1e6 }
console.log(JSON.stringify({ shown, ...cost }))
