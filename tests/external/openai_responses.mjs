// Responses by the official openai package for Node. As openai_sdk.mjs, which has the environment.
import { createRequire } from 'module';

const require = createRequire(`${process.env.SDK}/`);
const { default: OpenAI } = require('openai');
const client = new OpenAI({ baseURL: `${process.env.BASE_URL}/v1`, apiKey: 'any', maxRetries: 0 });
const model = 'any';
const tools = [['bash', 'command'], ['read_file', 'path']].map(([name, key]) => ({
  type: 'function', name, strict: false,
  parameters: { type: 'object', properties: { [key]: { type: 'string' } }, required: [key] },
}));
const task = [{ role: 'user', content: 'Run echo hi, read README.md, say what was printed.' }];
const counting = [{ role: 'user', content: 'Count.' }];

const trials = {
  async toolLoop() {
    const input = [...task], called = [];
    for (;;) {
      const stream = client.responses.stream({ model, input, tools, store: false });
      const { output, output_text, usage } = await stream.finalResponse();
      const calls = output.filter((item) => item.type === 'function_call');
      input.push(...output);
      if (!calls.length) return { called, text: output_text, cached: usage.input_tokens_details.cached_tokens };
      for (const { name, arguments: args, call_id } of calls) {
        called.push([name, JSON.parse(args)]);
        input.push({ type: 'function_call_output', call_id, output: 'hi' });
      }
    }
  },

  async streamedIsBuffered() {
    const wish = { model, input: task, tools };
    const body = await client.responses.create(wish);
    const types = [];
    const stream = client.responses.stream(wish);
    for await (const event of stream) types.push(event.type);
    const streamed = await stream.finalResponse();
    const calls = ({ output }) => output.filter((i) => i.type === 'function_call').map((i) => [i.name, i.arguments]);
    return {
      same: JSON.stringify(calls(body)) === JSON.stringify(calls(streamed)),
      statuses: [body.status, streamed.status],
      ends: [types[0], types.at(-1)],
      used: streamed.usage.output_tokens > 0,
    };
  },

  async chained() {
    const first = await client.responses.create({ model, input: 'hello', store: true });
    const next = await client.responses.create({ model, input: 'again', previous_response_id: first.id });
    const kept = await client.responses.retrieve(first.id);
    try {
      await client.responses.retrieve('resp_none');
    } catch (error) {
      return {
        kept: kept.output_text === first.output_text,
        reused: next.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens,
        unknown: [error.constructor.name, error.status],
      };
    }
  },

  async error() {
    try {
      await client.responses.create({ model, input: task, max_output_tokens: -1 });
    } catch (error) {
      return [error.constructor.name, error.status, error.type, error.param];
    }
  },

  async cancel() {
    const stream = await client.responses.create({ model, input: counting, stream: true });
    for await (const event of stream) if (event.type === 'response.output_text.delta') break;
    return (await client.responses.create({ model, input: task })).status;
  },

  async schema() {
    const schema = {
      type: 'object', additionalProperties: false, required: ['colour', 'coats'],
      properties: { colour: { enum: ['red', 'green'] }, coats: { enum: [1, 2] } },
    };
    const text = { format: { type: 'json_schema', name: 'paint', strict: true, schema } };
    const wish = { model, input: task, text, reasoning: { effort: 'none' }, temperature: 0 };
    const { output_text, status } = await client.responses.stream(wish).finalResponse();
    return { paint: JSON.parse(output_text), status };
  },
};

const results = {};
for (const name of process.env.TRIALS.split(' ')) results[name] = await trials[name]();
console.log(JSON.stringify(results));
