"""What holds for all tests."""

import os

from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Two processes with all of torch's threads each wait for one another: half as fast again.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Laws are not about time, and the first call into torch alone takes longer than the usual deadline.
settings.register_profile("without a deadline", deadline=None)
if settings.get_current_profile_name() == "default":  # a plugin may have chosen another
    settings.load_profile("without a deadline")
