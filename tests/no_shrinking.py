"""A pytest plugin for planted faults: Hypothesis stops at the first failure that it finds.

Shrinking makes a failure readable, which takes time and is of no use where only its being matters.
"""

from hypothesis import Phase, settings

settings.register_profile(
    "no_shrinking",
    phases=[Phase.explicit, Phase.generate],
    database=None,
    deadline=None,
    print_blob=False,
)
settings.load_profile("no_shrinking")
