// The AI SDK as a client of one Responses endpoint: does what the job in argv says and prints what it saw as JSON.
// A job is {url, apiKey?, headers?, prompt, stream?, tool?}; with `tool` the client has a function that adds two numbers.
import { createOpenResponses } from '@ai-sdk/open-responses';
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';

const job = JSON.parse(process.argv[process.argv.length - 1]);
const provider = createOpenResponses({ name: 'toolplug', url: job.url, apiKey: job.apiKey, headers: job.headers });
const add = tool({
  description: 'Add two numbers.',
  inputSchema: jsonSchema({
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
  }),
  execute: async ({ a, b }) => a + b,
});
const asked = {
  model: provider('scripted'),
  prompt: job.prompt,
  tools: job.tool ? { add } : undefined,
  stopWhen: isStepCount(3),
  maxRetries: 0,
};

async function streamed() {
  const result = streamText({ ...asked, onError: () => {} });
  const parts = [];
  for await (const part of result.fullStream) parts.push(part.type);
  return {
    parts,
    text: await result.text,
    reasoning: (await result.steps).map((step) => step.reasoningText ?? '').join(''),
    finish: await result.finishReason,
    usage: await result.totalUsage,
    steps: (await result.steps).length,
  };
}

async function generated() {
  const result = await generateText(asked);
  return {
    text: result.text,
    reasoning: result.steps.map((step) => step.reasoningText ?? '').join(''),
    finish: result.finishReason,
    usage: result.totalUsage,
    steps: result.steps.length,
  };
}

try {
  console.log(JSON.stringify(job.stream ? await streamed() : await generated()));
} catch (error) {
  console.log(JSON.stringify({ error: error.name, status: error.statusCode, message: error.message }));
}
