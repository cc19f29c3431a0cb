"""The bundled weights are noise that anybody can make again."""

from flashrt.demo import DEMO_PATH
from flashrt.demo.weights import make_weights, safetensors_bytes
from tests.demo.bundled import read


def test_the_weights_are_those_of_seed_0():
    """The maker gives the bundled bytes, on any machine and however often."""
    made = safetensors_bytes(make_weights(read("config.json"), seed=0))
    assert made == (DEMO_PATH / "model.safetensors").read_bytes()


def test_another_seed_is_another_model():
    """Noise is keyed by seed and by name: no two tensors and no two seeds share it."""
    small = {**read("config.json"), "vocab_size": 64, "layer_types": ["full_attention"]}
    zero, one = make_weights(small, seed=0), make_weights(small, seed=1)
    assert make_weights(small, seed=0) == zero
    for name in zero:
        assert zero[name].data != one[name].data
    assert len({made.data[:64] for made in zero.values()}) == len(zero)
