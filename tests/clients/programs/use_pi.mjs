// pi: its library of models, which always streams, by hand.
import { complete, Type } from '@mariozechner/pi-ai';
import { CITY, run } from './job_loop.mjs';

const tools = [{ name: CITY.name, description: CITY.description, parameters: Type.Object({}) }];

await run(async (job) => {
  const model = {
    id: job.model,
    name: job.model,
    api: 'openai-responses',
    provider: 'toolplug',
    baseUrl: job.url,
    reasoning: true,
    input: ['text'],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    contextWindow: 100_000,
    maxTokens: 1_000,
  };
  const messages = [];
  const texts = [];
  for (const prompt of job.prompts) {
    messages.push({ role: 'user', content: prompt, timestamp: 1 });
    let answer;
    do {
      const asked = { apiKey: job.key, maxRetries: 0, reasoningEffort: 'low', sessionId: 's' };
      answer = await complete(model, { messages, tools: job.own ? tools : [] }, asked);
      if (answer.errorMessage) throw new Error(answer.errorMessage);
      messages.push(answer);
      for (const { type, id, name } of answer.content) {
        if (type !== 'toolCall') continue;
        const content = [{ type: 'text', text: 'Cork' }];
        messages.push({ role: 'toolResult', toolCallId: id, toolName: name, content, isError: false, timestamp: 1 });
      }
    } while (answer.stopReason === 'toolUse');
    texts.push(answer.content.flatMap(({ type, text }) => (type === 'text' ? [text] : [])).join(''));
  }
  return texts;
});
