"""How invocations end, whoever ends them: a worker at a boundary, or a gateway that cancels what no worker runs."""
