"""Counting, echoes and the document, on a real server."""

from tests.whole.server import VOICE, chat_body, fake_engine, running_server

TOOLS = [{"type": "function", "function": {"name": "ls"}}]


async def test_what_tokenize_counts_is_what_a_request_is_charged():
    """The same ids as the prompt of the chat request with these fields, and back to its text."""
    fields = {"messages": chat_body("hello")["messages"], "tools": TOOLS, "enable_thinking": False}
    async with running_server(fake_engine()) as server:
        served = await server.chat("hello", tools=TOOLS, enable_thinking=False)
        counted = (await server.http.post("/tokenize", json=fields)).json()
        text = (await server.http.post("/detokenize", json={"tokens": counted["tokens"]})).json()
    assert counted["tokens"] == served["flashrt"]["prompt_token_ids"]
    assert counted["count"] == served["usage"]["prompt_tokens"]
    assert counted["max_model_len"] == 4096
    assert VOICE.tokenizer.encode(text["prompt"]) == tuple(counted["tokens"])


async def test_an_echo_of_ids_reads_like_an_echo_of_their_text():
    """Prompt and answer are the same either way."""
    ids = VOICE.tokenizer.encode("once upon a time")
    async with running_server(fake_engine()) as server:
        texts = []
        for prompt in ("once upon a time", list(ids)):
            body = {"prompt": prompt, "echo": True, "max_tokens": 5, "temperature": 0}
            answer = await server.http.post("/v1/completions", json=body)
            texts.append(answer.json()["choices"][0]["text"])
    assert texts[0] == texts[1]
    assert texts[0].startswith("once upon a time")
    assert len(texts[0]) > len("once upon a time")


async def test_ids_that_are_none_of_the_models_are_refused():
    """400 with the range, and nothing is guessed."""
    async with running_server(fake_engine()) as server:
        answer = await server.http.post("/detokenize", json={"tokens": [10**7]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tokens"


async def test_the_document_names_the_servers_version():
    """What is served is what describes it."""
    async with running_server(fake_engine()) as server:
        described = (await server.http.get("/openapi.json")).json()
    assert described["openapi"].startswith("3.1")
    assert described["info"]["version"] != "0"
    assert "/v1/chat/completions" in described["paths"]
