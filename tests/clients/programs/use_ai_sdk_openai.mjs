// The AI SDK with `@ai-sdk/openai`.
import { createOpenAI } from '@ai-sdk/openai';
import { converseWith } from './ai_sdk.mjs';

await converseWith(
  (job) => createOpenAI({ baseURL: job.url, apiKey: job.key }).responses(job.model),
  (job) => ({ openai: { store: job.prompts.length === 1 } }),
);
