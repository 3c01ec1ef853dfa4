// npm openai, by hand.
import OpenAI from 'openai';
import { CITY, run } from './job_loop.mjs';

await run(async (job) => {
  const client = new OpenAI({ baseURL: job.url, apiKey: job.key, maxRetries: 0 });
  const items = [];
  const texts = [];
  for (const prompt of job.prompts) {
    items.push({ role: 'user', content: prompt });
    let calls;
    do {
      const asked = { model: job.model, input: items, tools: job.own ? [CITY] : [], store: false };
      const response = job.stream
        ? await client.responses.stream(asked).finalResponse()
        : await client.responses.create(asked);
      items.push(...response.output.map(({ id, ...item }) => item));
      calls = response.output.filter((item) => item.type === 'function_call');
      items.push(...calls.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: 'Cork' })));
      if (!calls.length) texts.push(response.output_text);
    } while (calls.length);
  }
  return texts;
});
