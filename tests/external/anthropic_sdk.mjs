// The official @anthropic-ai/sdk package for Node. As openai_sdk.mjs, which has the environment.
import { createRequire } from 'module';

const require = createRequire(`${process.env.SDK}/`);
const { default: Anthropic } = require('@anthropic-ai/sdk');
const client = new Anthropic({ baseURL: process.env.BASE_URL, apiKey: 'any', maxRetries: 0 });
const tools = [['bash', 'command'], ['read_file', 'path']].map(([name, key]) => ({
  name, input_schema: { type: 'object', properties: { [key]: { type: 'string' } }, required: [key] },
}));
const messages = [{ role: 'user', content: 'Run echo hi, read README.md, say what was printed.' }];
const asked = { model: 'any', max_tokens: 4096, messages };
const counting = { ...asked, messages: [{ role: 'user', content: 'Count.' }] };
const sent = ({ usage }) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);

const trials = {
  async models() {
    return (await client.models.list()).data.map((one) => one.id);
  },

  async toolLoop() {
    const history = [...messages], called = [], cached = [];
    for (;;) {
      const stream = client.messages.stream({ ...asked, messages: history, tools });
      const { content, stop_reason, usage } = await stream.finalMessage();
      cached.push(usage.cache_read_input_tokens);
      history.push({ role: 'assistant', content });
      if (stop_reason === 'end_turn') return { called, cached, text: content.at(-1).text };
      const calls = content.filter((block) => block.type === 'tool_use');
      called.push(...calls.map(({ name, input }) => [name, input]));
      history.push({
        role: 'user',
        content: calls.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: 'hi' })),
      });
    }
  },

  async streamedIsBuffered() {
    const body = await client.messages.create({ ...asked, tools });
    const types = [];
    const stream = client.messages.stream({ ...asked, tools });
    stream.on('streamEvent', (event) => types.push(event.type));
    const streamed = await stream.finalMessage();
    const calls = ({ content }) => content.filter((b) => b.type === 'tool_use').map((b) => [b.name, b.input]);
    return {
      same: JSON.stringify(calls(body)) === JSON.stringify(calls(streamed)),
      reasons: [body.stop_reason, streamed.stop_reason],
      ends: [types[0], types.at(-1)],
      used: streamed.usage.output_tokens > 0,
    };
  },

  async countTokens() {
    const { input_tokens } = await client.messages.countTokens({ model: 'any', messages, tools });
    return [input_tokens > 0, input_tokens === sent(await client.messages.create({ ...asked, tools }))];
  },

  async error() {
    try {
      await client.messages.create({ ...asked, messages: [] });
    } catch (error) {
      return [error.constructor.name, error.status, error.error.error.type];
    }
  },

  async tooLong() {
    const long = [{ role: 'user', content: 'word '.repeat(70000) }];
    try {
      await client.messages.create({ ...asked, messages: long });
    } catch (error) {
      return [error.status, error.error.error.type, /prompt is too long: \d+ tokens > \d+ maximum/.test(error.message)];
    }
  },

  async wrongKey() {
    const stranger = new Anthropic({ baseURL: client.baseURL, apiKey: 'wrong', maxRetries: 0 });
    try {
      await stranger.messages.create(asked);
    } catch (error) {
      return [error.constructor.name, error.status, error.error.error.type];
    }
  },

  async cancel() {
    const stream = await client.messages.create({ ...counting, stream: true });
    for await (const event of stream) if (event.type === 'content_block_delta') break;
    stream.controller.abort();
    return (await client.messages.create(asked)).stop_reason;
  },

  async schema() {
    const schema = {
      type: 'object', additionalProperties: false, required: ['colour', 'coats'],
      properties: { colour: { enum: ['red', 'green'] }, coats: { enum: [1, 2] } },
    };
    const wish = { ...asked, output_config: { format: { type: 'json_schema', schema } }, temperature: 0 };
    const { content, stop_reason } = await client.messages.stream(wish).finalMessage();
    return { paint: JSON.parse(content.at(-1).text), stop_reason };
  },
};

const results = {};
for (const name of process.env.TRIALS.split(' ')) results[name] = await trials[name]();
console.log(JSON.stringify(results));
