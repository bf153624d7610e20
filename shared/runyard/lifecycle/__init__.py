"""How invocations begin and end. A worker ends one at a boundary; a gateway ends one that no worker runs."""
