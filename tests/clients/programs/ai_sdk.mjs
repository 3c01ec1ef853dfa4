// The AI SDK with either of its providers: the model is made by `modelOf`.
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';
import { run } from './job_loop.mjs';

const city = tool({
  description: 'Find the city.',
  inputSchema: jsonSchema({ type: 'object', properties: {}, required: [] }),
  execute: async () => 'Cork',
});

export const converseWith = (modelOf, optionsOf = () => ({})) =>
  run(async (job) => {
    const messages = [];
    const texts = [];
    for (const prompt of job.prompts) {
      messages.push({ role: 'user', content: prompt });
      const asked = {
        model: modelOf(job),
        messages,
        tools: job.own ? { city } : undefined,
        stopWhen: isStepCount(5),
        maxRetries: 0,
        providerOptions: optionsOf(job),
      };
      let result;
      if (job.stream) {
        let failed;
        result = streamText({ ...asked, onError: ({ error }) => (failed = error) });
        await result.consumeStream();
        if (failed) throw failed;
      } else {
        result = await generateText(asked);
      }
      messages.push(...(await result.responseMessages));
      texts.push(await result.text);
    }
    return texts;
  });
