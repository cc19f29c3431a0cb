"""What holds for all tests."""

from hypothesis import settings

# Laws are not about time, and the first call into torch alone takes longer than the usual deadline.
settings.register_profile("without a deadline", deadline=None)
if settings.get_current_profile_name() == "default":  # a plugin may have chosen another
    settings.load_profile("without a deadline")
