"""The demo's chat template: our own wording around the wire format of the Qwen3.5/3.6 family.

Differences that are meant: system turns may stand anywhere, and thinking stays in the history
unless `preserve_thinking` is false, so a conversation that only grows keeps its prefix. Behind each
schema stand the tool's names once more, in the tags of a call: in JSON they are cut into other
tokens, and a small model cannot spell.
"""

CHAT_TEMPLATE = r"""
{%- macro text_of(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part is mapping and part.text is string -%}
                {{- part.text -}}
            {%- else -%}
                {{- raise_exception('this model reads text only') -}}
            {%- endif -%}
        {%- endfor -%}
    {%- elif content is not none and content is defined -%}
        {{- raise_exception('message content must be text or a list of text parts') -}}
    {%- endif -%}
{%- endmacro -%}

{%- macro tool_call(call) -%}
    {%- set wanted = call.function if call.function is defined else call -%}
    {{- '<tool_call>\n<function=' + wanted.name + '>\n' -}}
    {%- if wanted.arguments is mapping -%}
        {%- for name, value in wanted.arguments.items() -%}
            {{- '<parameter=' + name + '>\n' -}}
            {{- value if value is string else value | tojson -}}
            {{- '\n</parameter>\n' -}}
        {%- endfor -%}
    {%- elif wanted.arguments -%}
        {{- raise_exception('tool call arguments must be a mapping') -}}
    {%- endif -%}
    {{- '</function>\n</tool_call>' -}}
{%- endmacro -%}

{%- macro frame(tool) -%}
    {%- set offered = tool.function if tool.function is defined else tool -%}
    {%- set schema = offered.parameters if offered.parameters is mapping else {} -%}
    {{- '<function=' + offered.name + '>\n' -}}
    {%- for name in schema.properties if schema.properties is mapping -%}
        {{- '<parameter=' + name + '>\n' -}}
    {%- endfor -%}
    {{- '</function>\n' -}}
{%- endmacro -%}

{%- if not messages -%}
    {{- raise_exception('a conversation needs at least one message') -}}
{%- endif -%}

{%- set last = namespace(user=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}
        {%- set last.user = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}

{%- set rest = messages -%}
{%- if tools -%}
    {{- '<|im_start|>system\n# Tools\n\n' -}}
    {{- 'These functions can be called. Of each, the JSON schema and the frame of a call:\n' -}}
    {{- '<tools>\n' -}}
    {%- for tool in tools -%}
        {{- tool | tojson + '\n' + frame(tool) -}}
    {%- endfor -%}
    {{- '</tools>\n\n' -}}
    {{- 'A call is written exactly in this form, its values between the tags as they are:\n' -}}
    {{- '<tool_call>\n<function=NAME>\n<parameter=P>\nVALUE\n</parameter>\n</function>\n' -}}
    {{- '</tool_call>\n\n' -}}
    {{- 'Text may come before a call, never after it. Several calls follow one another. ' -}}
    {{- 'Values that are not text are JSON. When no function fits, answer without a call.' -}}
    {%- if messages[0].role == 'system' -%}
        {{- '\n\n' + text_of(messages[0].content) | trim -}}
    {%- endif -%}
    {{- '<|im_end|>\n' -}}
{%- endif -%}

{%- for message in messages -%}
    {%- set content = text_of(message.content) | trim -%}
    {%- if message.role == 'system' -%}
        {%- if not (tools and loop.first) -%}
            {{- '<|im_start|>system\n' + content + '<|im_end|>\n' -}}
        {%- endif -%}
    {%- elif message.role == 'user' -%}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if preserve_thinking is undefined or preserve_thinking or loop.index0 > last.user -%}
            {%- set thoughts = text_of(message.reasoning_content) | trim -%}
            {{- '<think>\n' + (thoughts + '\n' if thoughts else '\n') + '</think>\n\n' -}}
        {%- endif -%}
        {{- content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- ('\n\n' if loop.first and content else '' if loop.first else '\n') -}}
            {{- tool_call(call) -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}
            {{- '<|im_start|>user' -}}
        {%- endif -%}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' -}}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}
            {{- '<|im_end|>\n' -}}
        {%- endif -%}
    {%- else -%}
        {{- raise_exception('unknown role ' ~ message.role) -}}
    {%- endif -%}
{%- endfor -%}

{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n<think>\n' -}}
    {%- if enable_thinking is defined and not enable_thinking -%}
        {{- '\n</think>\n\n' -}}
    {%- endif -%}
{%- endif -%}
""".lstrip("\n")
