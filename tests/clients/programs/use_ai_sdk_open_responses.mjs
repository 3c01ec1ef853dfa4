// The AI SDK with `@ai-sdk/open-responses`.
import { createOpenResponses } from '@ai-sdk/open-responses';
import { converseWith } from './ai_sdk.mjs';

await converseWith((job) =>
  createOpenResponses({ name: 'toolplug', url: `${job.url}/responses`, apiKey: job.key })(job.model),
);
