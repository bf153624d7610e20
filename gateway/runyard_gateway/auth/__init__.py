"""Who calls, whom the call is for, and the credentials behind it."""
