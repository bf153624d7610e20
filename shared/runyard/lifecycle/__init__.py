"""How invocations begin and end, whoever ends them: a worker at a boundary, or a gateway where no worker runs them."""
