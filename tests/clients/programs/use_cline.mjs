// Cline: its loop, which always streams, over chat completions.
import { Agent } from '@cline/agents';
import { CITY, run } from './job_loop.mjs';

const city = {
  name: CITY.name,
  description: CITY.description,
  inputSchema: CITY.parameters,
  execute: async () => 'Cork',
};

await run(async (job) => {
  const agent = new Agent({
    providerId: 'openai-compatible',
    modelId: job.model,
    apiKey: job.key,
    baseUrl: job.url,
    tools: job.own ? [city] : [],
  });
  const texts = [];
  for (const prompt of job.prompts) {
    const { status, error, outputText } = await agent.run(prompt);
    if (status !== 'completed') throw error ?? new Error(status);
    texts.push(outputText);
  }
  return texts;
});
