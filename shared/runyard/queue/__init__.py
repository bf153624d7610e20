"""Messages over dramatiq. A message says only "this run may be claimable": it may be lost, doubled or late."""
