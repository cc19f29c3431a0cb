"""What vLLM is asked for; vLLM itself is seldom installed."""

import attrs

from flashrt.bench.engine.vllm_peer import measure, settings_of


@attrs.define
class Engine:
    """Has the one method that is used, and remembers what it was asked."""

    asked: list[tuple[list[int], int]] = attrs.field(factory=list)

    def generate(self, prompts, params, use_tqdm):
        self.asked.append((prompts[0]["prompt_token_ids"], params["max_tokens"]))


def test_every_prompt_is_answered_by_one_id_and_by_more():
    """The difference is what the further ones take."""
    engine = Engine()

    times = measure(engine, dict, {"prompts": [[1, 2], [3]], "steps": 4})

    assert engine.asked == [([1, 2], 1), ([1, 2], 5), ([3], 1), ([3], 5)]
    assert len(times) == 2
    assert all(first > 0 for first, _ in times)


def test_weights_are_made_up_only_where_there_are_none(tmp_path):
    """And no prompt finds its prefix computed."""
    work = {"model": str(tmp_path), "dtype": "bfloat16", "max_seq": 100}
    assert settings_of(work)["load_format"] == "dummy"
    (tmp_path / "model.safetensors").touch()

    settings = settings_of(work)

    assert settings["load_format"] == "auto"
    assert settings["enable_prefix_caching"] is False
    assert settings["max_num_batched_tokens"] == 100
