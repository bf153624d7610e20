"""Who calls, whom a call is for, what they have shown for it and for how long it is good."""
