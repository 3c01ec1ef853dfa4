// A real small model as a server of Chat Completions: picks a tool and its arguments for the last request of the user.
// It is a base model of 270M parameters: it is shown the requests that stand after "Such as:" in the tools' descriptions,
// and a grammar keeps it to the tools that it is offered and to their parameters.
// argv: the model's file. Prints its port. What came of a call is answered as it is: that needs no model.
import { createServer } from 'node:http';
import { getLlama, LlamaCompletion } from 'node-llama-cpp';

const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error', maxThreads: 2 });
const model = await llama.loadModel({ modelPath: process.argv[process.argv.length - 1] });
const context = await model.createContext({ contextSize: 2048 });
const completion = new LlamaCompletion({ contextSequence: context.getSequence() });

async function picked(tools, request) {
  const shown = tools.map(({ name, description }) => description.split('Such as: ').slice(1).map((each) => [each, name]));
  const examplesInTurn = shown[0].flatMap((_, index) => shown.map((examples) => examples[index]));
  const examples = examplesInTurn.map(([asked, name]) => `Request: ${asked.trim()}\nTool: ${name}\n\n`).join('');
  const prompt = `${examples}Request: ${request}\nTool:`;
  const name = (await completed(prompt, `root ::= ${tools.map((tool) => `" ${tool.name}"`).join(' | ')}`)).trim();
  const { parameters } = tools.find((tool) => tool.name === name);
  return { name, arguments: await completed(`${prompt} ${name}\nArguments as JSON:`, rules(parameters.properties)) };
}

// One line of JSON with every parameter in its order: no room for a small model to lose itself in.
function rules(properties) {
  const given = Object.entries(properties).map(([key, { type }]) => `"\\"${key}\\": " ${type}`);
  return [
    `root ::= " {" ${given.join(' ", " ')} "}"`,
    'string ::= "\\"" [a-zA-Z0-9 .\']{1,40} "\\""',
    'integer ::= "-"? [1-9] [0-9]{0,5}',
  ].join('\n');
}

async function completed(prompt, grammar) {
  const kept = await llama.createGrammar({ grammar });
  return completion.generateCompletion(prompt, { grammar: kept, maxTokens: 96, temperature: 0 });
}

// One request at a time: the context has one sequence.
let last = Promise.resolve();
function inTurn(work) {
  last = last.then(work, work);
  return last;
}

async function answer(asked) {
  const newest = asked.messages[asked.messages.length - 1];
  if (newest.role === 'tool') return [{ role: 'assistant', content: newest.content }, 'stop'];
  const made = await inTurn(() => picked(asked.tools.map((tool) => tool.function), newest.content));
  const message = { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: made }] };
  return [message, 'tool_calls'];
}

const server = createServer(async (request, response) => {
  let body = '';
  for await (const part of request) body += part;
  const [message, finish_reason] = await answer(JSON.parse(body));
  const choices = [{ index: 0, message, finish_reason }];
  response.setHeader('Content-Type', 'application/json');
  response.end(JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: 'small', choices }));
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
