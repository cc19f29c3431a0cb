// The official openai package for Node against a running server. Prints one JSON line: what came of
// each trial. Environment: BASE_URL, SDK (the folder of the installed package), TRIALS (names).
import { createRequire } from 'module';

const require = createRequire(`${process.env.SDK}/`);
const { default: OpenAI } = require('openai');
const client = new OpenAI({ baseURL: `${process.env.BASE_URL}/v1`, apiKey: 'any', maxRetries: 0 });
const model = 'any';
const parameters = (key) => ({ type: 'object', properties: { [key]: { type: 'string' } }, required: [key] });
const tools = [['bash', 'command'], ['read_file', 'path']].map(([name, key]) => (
  { type: 'function', function: { name, parameters: parameters(key) } }));
const task = [{ role: 'user', content: 'Run echo hi, read README.md, say what was printed.' }];

const trials = {
  async models() {
    return (await client.models.list()).data.map((m) => m.max_model_len);
  },

  async toolLoop() {
    const messages = [...task], called = [];
    for (;;) {
      const stream = client.chat.completions.stream({ model, messages, tools });
      const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
      messages.push(message);
      if (finish_reason === 'stop') return { called, text: message.content };
      for (const call of message.tool_calls) {
        called.push([call.function.name, JSON.parse(call.function.arguments)]);
        messages.push({ role: 'tool', tool_call_id: call.id, content: 'hi' });
      }
    }
  },

  async streamedIsBuffered() {
    const wish = { model, messages: task, tools };
    const body = (await client.chat.completions.create(wish)).choices[0];
    const stream = client.chat.completions.stream({ ...wish, stream_options: { include_usage: true } });
    const streamed = await stream.finalChatCompletion();
    const call = (message) => message.tool_calls.map((c) => c.function);
    return {
      same: JSON.stringify(call(body.message)) === JSON.stringify(call(streamed.choices[0].message)),
      reasons: [body.finish_reason, streamed.choices[0].finish_reason],
      used: (await stream.totalUsage()).completion_tokens > 0,
    };
  },

  async error() {
    try {
      await client.chat.completions.create({ model, messages: [] });
    } catch (error) {
      return [error.constructor.name, error.status, error.type];
    }
  },

  async wrongKey() {
    const stranger = new OpenAI({ baseURL: client.baseURL, apiKey: 'wrong', maxRetries: 0 });
    try {
      await stranger.models.list();
    } catch (error) {
      return [error.constructor.name, error.status];
    }
  },

  async cancel() {
    const counting = [{ role: 'user', content: 'Count.' }];
    const stream = await client.chat.completions.create({ model, messages: counting, stream: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
    return (await client.chat.completions.create({ model, messages: task })).choices[0].finish_reason;
  },

  async schema() {
    const schema = {
      type: 'object', additionalProperties: false, required: ['colour', 'coats'],
      properties: { colour: { enum: ['red', 'green'] }, coats: { enum: [1, 2] } },
    };
    const response_format = { type: 'json_schema', json_schema: { name: 'paint', strict: true, schema } };
    const wish = { model, messages: task, response_format, enable_thinking: false, temperature: 0 };
    const stream = client.chat.completions.stream(wish);
    const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
    return { paint: message.parsed ?? JSON.parse(message.content), finish_reason };
  },

  async namedTool() {
    const bounded = { type: 'object', properties: { word: { type: 'string', maxLength: 5 } }, required: ['word'] };
    const say = [{ type: 'function', function: { name: 'say', parameters: bounded } }];
    const tool_choice = { type: 'function', function: { name: 'say' } };
    const wish = { model, messages: task, tools: say, tool_choice, enable_thinking: false };
    const { message, finish_reason } = (await client.chat.completions.create(wish)).choices[0];
    const [call] = message.tool_calls;
    return { name: call.function.name, word: typeof JSON.parse(call.function.arguments).word, finish_reason };
  },

  async logprobs() {
    const wish = { model, messages: task, logprobs: true, top_logprobs: 3, max_tokens: 4 };
    const { choices, usage } = await client.chat.completions.create(wish);
    const told = choices[0].logprobs.content;
    return [told.length === usage.completion_tokens, told.map((one) => one.top_logprobs.length)];
  },

  async refusal() {
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'triangle' } } };
    try {
      await client.chat.completions.create({ model, messages: task, response_format });
    } catch (error) {
      return [error.status, error.param];
    }
  },
};

const results = {};
for (const name of process.env.TRIALS.split(' ')) results[name] = await trials[name]();
console.log(JSON.stringify(results));
