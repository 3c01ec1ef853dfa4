// What every JavaScript program here does: one conversation for each line of standard input; see job_loop.py.
import { createInterface } from 'node:readline';

export const CITY = {
  type: 'function',
  name: 'city',
  description: 'Find the city.',
  parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
  strict: false,
};

export async function run(converse) {
  for await (const line of createInterface({ input: process.stdin })) {
    let done;
    try {
      done = { texts: await converse(JSON.parse(line)) };
    } catch (error) {
      done = { error: `${error.name}: ${error.message}` };
    }
    console.log(JSON.stringify(done));
  }
}
